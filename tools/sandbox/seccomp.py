"""The closed list of system calls of a sandbox, as a seccomp filter.

The filter is a small BPF program that the kernel runs at every system call.

A call on no list ends the process (SIGSYS): honest code never makes it, so it is an attack, and the
bot notes it. Calls that honest libraries try and can do without fail with EPERM. Calls that are
newer than this file fail with ENOSYS, so that a newer C library falls back to an older call.

Sources: seccomp(2), seccomp_unotify(2); linux/filter.h, linux/seccomp.h.
"""

import ctypes
import os
import signal
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import ENOSYS, EPERM
from typing import Final

from tools.sandbox.syscalls import Architecture, architecture, system_call

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant: struct sock_filter."""

LOAD_WORD: Final = 0x20
JUMP_IF_EQUAL: Final = 0x15
JUMP_IF_GREATER: Final = 0x25
JUMP_IF_NOT_LESS: Final = 0x35
AND: Final = 0x54
RETURN: Final = 0x06

KILL: Final = 0x80000000
REFUSE: Final = 0x00050000
"""SECCOMP_RET_ERRNO; the errno is added."""
ALLOW: Final = 0x7FFF0000

NUMBER_OFFSET: Final = 0
ARCHITECTURE_OFFSET: Final = 4
ARGUMENTS_OFFSET: Final = 16
_ARGUMENT_BYTES: Final = 8

NEWEST_KNOWN: Final = 470
"""Higher numbers came after this file was written (Linux 6.18)."""

_SET_MODE_FILTER: Final = 1
_GET_ACTION_AVAILABLE: Final = 2
_ALL_THREADS: Final = 1

_PROT_EXEC: Final = 0x4
_MAP_ANONYMOUS: Final = 0x20
_STDIN, _STDOUT = 0, 1
_MADV_DONTNEED, _MADV_FREE, _MADV_HUGEPAGE = 4, 8, 14
_FUTEX_FLAGS: Final = 128 | 256  # private to the process; by the clock of the day
_FUTEX_OPERATIONS: Final = (0, 1, 9, 10)  # wait and wake, with a bit set or without
_WORD: Final = 0xFFFFFFFF
_ITIMER_REAL: Final = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """Condition for an argument; if it is not met, the call fails with EPERM.

    The filter compares the low 32 bits, as the kernel does for each argument that is named below.

    Attributes:
        argument: its number, from 0.
        values: allowed ones, or forbidden ones.
        mask: the bits that count.
        forbidden: whether the values are forbidden.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = _WORD
    forbidden: bool = False


_NO_PROGRAM: Final = Demand(2, (0,), mask=_PROT_EXEC)
_OWN_CLOCKS: Final = Demand(0, (0,), mask=_WORD & ~0xF)
"""Higher numbers are clocks of other processes and of devices."""

ALLOWED: Final[Mapping[str, tuple[Demand, ...]]] = {
    "read": (Demand(0, (_STDIN,)),),
    "write": (Demand(0, (_STDOUT,)),),
    "mmap": (_NO_PROGRAM, Demand(3, (_MAP_ANONYMOUS,), mask=_MAP_ANONYMOUS)),
    "mprotect": (_NO_PROGRAM,),
    "madvise": (Demand(2, (_MADV_DONTNEED, _MADV_FREE, _MADV_HUGEPAGE)),),
    "futex": (Demand(1, _FUTEX_OPERATIONS, mask=_WORD & ~_FUTEX_FLAGS),),
    "clock_gettime": (_OWN_CLOCKS,),
    "clock_getres": (_OWN_CLOCKS,),
    "setitimer": (Demand(0, (_ITIMER_REAL,)),),
    **dict.fromkeys(("brk", "munmap", "mremap", "gettimeofday", "time", "getrandom", "getpid"), ()),
    **dict.fromkeys(("sched_yield", "restart_syscall", "exit", "exit_group"), ()),
    **dict.fromkeys(("rt_sigaction", "rt_sigprocmask", "rt_sigreturn"), ()),
}
"""The list of a sandbox without a folder."""

REFUSED: Final = (
    *("open", "openat", "openat2", "close", "lseek", "ioctl", "fcntl", "poll", "ppoll"),
    *("stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"),
    *("readlink", "readlinkat", "getdents64", "getcwd", "uname", "sysinfo", "prctl"),
    *("getuid", "geteuid", "getgid", "getegid", "getppid", "gettid", "getcpu"),
    *("getrlimit", "prlimit64", "getrusage", "times", "sched_getaffinity", "sigaltstack"),
    *("nanosleep", "clock_nanosleep", "select", "pselect6"),
)

_ABORTING: Final = ("tgkill", Demand(2, (signal.SIGABRT,)))
"""A library that aborts sends itself this signal; if that fails, it ends by another one."""

_DUPLICATE, _READ_FLAGS, _SET_FLAGS, _READ_MODE = 1030, 1, 2, 3

IN_A_FOLDER: Final[Mapping[str, tuple[Demand, ...]]] = {
    **ALLOWED,
    "read": (),
    "write": (),
    # The only way to open anything. Its flags keep it below the present folder, and other walls do
    # so if an attacker leaves the flags out.
    "openat2": (),
    "fcntl": (Demand(1, (_DUPLICATE, _READ_FLAGS, _SET_FLAGS, _READ_MODE)),),
    **dict.fromkeys(("close", "lseek", "fstat", "newfstatat", "getdents64", "ftruncate"), ()),
    **dict.fromkeys(("fsync", "mkdirat", "unlinkat", "renameat"), ()),
}
"""The list of a sandbox that works in a folder."""


def program(
    of: Architecture,
    rules: Mapping[str, tuple[Demand, ...]] = ALLOWED,
    *,
    absent: Sequence[str] = (),
    pretended: Sequence[tuple[str, Demand]] = (),
    kills: bool = True,
) -> list[Instruction]:
    """Return a filter.

    Args:
        of: the processor.
        rules: allowed calls.
        absent: calls that fail with ENOSYS, as if the kernel were older.
        pretended: calls that do nothing and succeed if a demand with a single value is met.
        kills: a call outside `rules` and REFUSED ends the process; otherwise it fails with EPERM.
    """
    steps = _allowing(of, rules)
    refused = (name for name in REFUSED if kills and name not in rules)
    for names, error in ((refused, EPERM), (absent, ENOSYS)):
        for number in _numbers(names, of):
            steps += _exactly(number, [_refusal(error)])
    for (name, demand), error in (*((one, 0) for one in pretended), *[(_ABORTING, EPERM)] * kills):
        for number in _numbers([name], of):
            steps += _if_met(number, demand, _refusal(error))
    steps += [(JUMP_IF_GREATER, 0, 1, NEWEST_KNOWN), _refusal(ENOSYS)]
    return [*steps, (RETURN, 0, 0, KILL) if kills else _refusal(EPERM)]


def is_available() -> bool:
    """Return whether this machine can run the filter, without starting it."""
    try:
        system_call("seccomp", _GET_ACTION_AVAILABLE, 0, struct.pack("=I", KILL))
    except OSError:
        return False
    return True


def install(*, folder: bool = False) -> None:
    """Hold this process to the list of a sandbox; OSError if the kernel does not enforce it."""
    load(program(architecture(), IN_A_FOLDER if folder else ALLOWED))
    try:
        os.uname()  # is refused, and works without the filter
    except PermissionError:
        return
    raise OSError("the filter does not hold")


def as_bytes(steps: Sequence[Instruction]) -> bytes:
    """Return a filter as the kernel reads it: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def load(steps: Sequence[Instruction]) -> None:
    """Load a filter into the kernel, for all threads; needs no_new_privs; raises OSError."""
    code = ctypes.create_string_buffer(as_bytes(steps))
    whole = struct.pack("@HP", len(steps), ctypes.addressof(code))  # struct sock_fprog
    if system_call("seccomp", _SET_MODE_FILTER, _ALL_THREADS, whole) != 0:
        raise OSError("a thread could not be confined")


def _numbers(names: Iterable[str], of: Architecture) -> Iterator[int]:
    """Yield the calls that the architecture has; newer ones lack, for example, `open`."""
    return (of.numbers[name] for name in names if name in of.numbers)


def _allowing(of: Architecture, rules: Mapping[str, tuple[Demand, ...]]) -> list[Instruction]:
    """Return the steps that allow the calls of some rules if their demands are met."""
    steps: list[Instruction] = [
        (LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, of.audit),
        (RETURN, 0, 0, KILL),
        (LOAD_WORD, 0, 0, NUMBER_OFFSET),
    ]
    if of.foreign_from is not None:
        steps += [(JUMP_IF_NOT_LESS, 0, 1, of.foreign_from), (RETURN, 0, 0, KILL)]
    for name in rules:
        checks = [step for demand in rules[name] for step in _check(demand)]
        for number in _numbers([name], of):
            steps += _exactly(number, [*checks, (RETURN, 0, 0, ALLOW)])
    return steps


def _exactly(number: int, then: list[Instruction]) -> list[Instruction]:
    """Run steps, the last of which returns, if this number was loaded; otherwise skip them."""
    return [(JUMP_IF_EQUAL, 0, len(then), number), *then]


def _if_met(number: int, demand: Demand, then: Instruction) -> list[Instruction]:
    """Run a step, which returns, if this number was loaded and the demand is met."""
    (value,) = demand.values
    met = (JUMP_IF_EQUAL, *((1, 0) if demand.forbidden else (0, 1)), value)
    return _exactly(number, [*_load(demand), met, then, (LOAD_WORD, 0, 0, NUMBER_OFFSET)])


def _check(demand: Demand) -> Iterator[Instruction]:
    """Continue after these steps if the demand is met; otherwise refuse the call."""
    yield from _load(demand)
    if demand.forbidden:
        for value in demand.values:
            yield from _exactly(value, [_refusal(EPERM)])
        return
    for steps_left, value in zip(range(len(demand.values), 0, -1), demand.values, strict=True):
        yield (JUMP_IF_EQUAL, steps_left, 0, value)
    yield _refusal(EPERM)


def _load(demand: Demand) -> list[Instruction]:
    place = ARGUMENTS_OFFSET + _ARGUMENT_BYTES * demand.argument
    return [(LOAD_WORD, 0, 0, place), (AND, 0, 0, demand.mask)]


def _refusal(number: int) -> Instruction:
    return (RETURN, 0, 0, REFUSE + number)
