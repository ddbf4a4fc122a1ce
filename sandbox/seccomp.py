"""The closed list of what a sandbox may ask of the kernel, as a seccomp filter.

The filter is a small BPF program that the kernel runs at every system call. It is our own and not
libseccomp's, because it has forty lines of rules, never changes while it runs, and must not depend
on a system library that the image would have to carry.

What is on no list ends the process (SIGSYS): honest code never asks for it, so it is an attack, and
the bot notes it. What honest libraries try and do without, such as opening a file for a better
default, fails with EPERM. Calls that are newer than this file fail with ENOSYS, so that a newer
C library falls back to an older call.

Sources: seccomp(2), seccomp_unotify(2); linux/filter.h, linux/seccomp.h.
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import ENOSYS, EPERM
from itertools import chain
from typing import Final

from sandbox.syscalls import Architecture, architecture, system_call

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
"""What is above came after this file was written (Linux 6.18)."""

_SET_MODE_FILTER: Final = 1
_GET_ACTION_AVAILABLE: Final = 2
_ALL_THREADS: Final = 1

_PROT_EXEC: Final = 0x4
_MAP_ANONYMOUS: Final = 0x20
_STDIN, _STDOUT = 0, 1
_MADV_DONTNEED, _MADV_FREE, _MADV_HUGEPAGE = 4, 8, 14
_FUTEX_FLAGS: Final = 128 | 256  # private to the process; by the clock of the day
_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET = 0, 1, 9, 10
_WORD: Final = 0xFFFFFFFF
_ITIMER_REAL: Final = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """What an argument must be, or the call fails with EPERM.

    Only the low 32 bits are looked at: in each argument that is named below the kernel, too, looks
    at no others.

    Attributes:
        argument: its number, from 0.
        values: what it may be.
        mask: the bits that count.
        forbidden: the values are what it may not be.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = _WORD
    forbidden: bool = False


_OWN_CLOCKS: Final = Demand(0, (0,), mask=_WORD & ~0xF)
"""Higher numbers are clocks of other processes and of devices."""

ALLOWED: Final[Mapping[str, tuple[Demand, ...]]] = {
    "read": (Demand(0, (_STDIN,)),),
    "write": (Demand(0, (_STDOUT,)),),
    "select": (),
    "pselect6": (),
    "mmap": (
        Demand(2, (0,), mask=_PROT_EXEC),
        Demand(3, (_MAP_ANONYMOUS,), mask=_MAP_ANONYMOUS),
    ),
    "mprotect": (Demand(2, (0,), mask=_PROT_EXEC),),
    "munmap": (),
    "mremap": (),
    "madvise": (Demand(2, (_MADV_DONTNEED, _MADV_FREE, _MADV_HUGEPAGE)),),
    "brk": (),
    "futex": (
        Demand(
            1,
            (_FUTEX_WAIT, _FUTEX_WAKE, _FUTEX_WAIT_BITSET, _FUTEX_WAKE_BITSET),
            mask=_WORD & ~_FUTEX_FLAGS,
        ),
    ),
    "clock_gettime": (_OWN_CLOCKS,),
    "clock_getres": (_OWN_CLOCKS,),
    "gettimeofday": (),
    "time": (),
    "getrandom": (),
    "getpid": (),
    "sched_yield": (),
    "restart_syscall": (),
    "setitimer": (Demand(0, (_ITIMER_REAL,)),),
    "rt_sigaction": (),
    "rt_sigprocmask": (),
    "rt_sigreturn": (),
    "exit": (),
    "exit_group": (),
}

REFUSED: Final = (
    *("open", "openat", "openat2", "close", "lseek", "ioctl", "fcntl", "poll", "ppoll"),
    *("stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"),
    *("readlink", "readlinkat", "getdents64", "getcwd", "uname", "sysinfo", "prctl"),
    *("getuid", "geteuid", "getgid", "getegid", "getppid", "gettid", "getcpu"),
    *("getrlimit", "prlimit64", "getrusage", "times", "sched_getaffinity", "sigaltstack"),
    *("nanosleep", "clock_nanosleep"),
)


_DUPLICATE, _READ_FLAGS, _SET_FLAGS, _READ_MODE = 1030, 1, 2, 3

IN_A_FOLDER: Final[Mapping[str, tuple[Demand, ...]]] = {
    **ALLOWED,
    "read": (),
    "write": (),
    # The only way to open anything: the flags in its argument keep it below the present folder,
    # and other walls do so where an attacker has left them out.
    "openat2": (),
    "close": (),
    "lseek": (),
    "fstat": (),
    "newfstatat": (),
    "getdents64": (),
    "fcntl": (Demand(1, (_DUPLICATE, _READ_FLAGS, _SET_FLAGS, _READ_MODE)),),
    "mkdirat": (),
    "unlinkat": (),
    "renameat": (),
    "linkat": (Demand(4, (0,)),),
    "ftruncate": (),
    "fsync": (),
}
"""What a sandbox that works in a folder may ask for besides."""


class _Program(ctypes.Structure):
    """A struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def program(
    of: Architecture, rules: Mapping[str, tuple[Demand, ...]] = ALLOWED
) -> list[Instruction]:
    """Return the filter for a kind of processor.

    Args:
        of: the processor.
        rules: what is allowed.
    """
    others = [name for name in REFUSED if name not in rules]
    refused = [_exactly(number, [_refusal(EPERM)]) for _, number in _numbers(others, of)]
    return [*_allowing(of, rules), *chain.from_iterable(refused), *_newer(), (RETURN, 0, 0, KILL)]


def program_for_programs(
    of: Architecture,
    rules: Mapping[str, tuple[Demand, ...]],
    absent: Sequence[str],
    pretended: Sequence[tuple[str, Demand]] = (),
) -> list[Instruction]:
    """Return the filter for programs that were not written for it: nothing ends them.

    Args:
        of: the processor.
        rules: what is allowed; all else fails with EPERM.
        absent: what fails with ENOSYS, as if the kernel were older.
        pretended: what is not done and succeeds, where a demand with a single value is met.
    """
    others = [
        *(_exactly(number, [_refusal(ENOSYS)]) for _, number in _numbers(absent, of)),
        *(
            _where(number, demand, _refusal(0))
            for name, demand in pretended
            for _, number in _numbers([name], of)
        ),
    ]
    return [*_allowing(of, rules), *chain.from_iterable(others), *_newer(), _refusal(EPERM)]


def _newer() -> list[Instruction]:
    return [(JUMP_IF_GREATER, 0, 1, NEWEST_KNOWN), _refusal(ENOSYS)]


def _allowing(of: Architecture, rules: Mapping[str, tuple[Demand, ...]]) -> Iterator[Instruction]:
    """Yield what allows the calls that rules name, where their demands are met."""
    yield from (
        (LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 1, 0, of.audit),
        (RETURN, 0, 0, KILL),
        (LOAD_WORD, 0, 0, NUMBER_OFFSET),
        *_own_abi(of),
    )
    for name, number in _numbers(rules, of):
        yield from _rule(number, rules[name])


def is_available() -> bool:
    """Return whether this machine can run the filter, without starting it."""
    action = ctypes.c_uint32(KILL)
    try:
        address = ctypes.c_void_p(ctypes.addressof(action))
        system_call("seccomp", _GET_ACTION_AVAILABLE, 0, address)
    except OSError:
        return False
    return True


def install(*, folder: bool = False) -> None:
    """Hold this process to the lists from now on.

    Args:
        folder: it works in a folder.

    Raises:
        OSError: the kernel refuses the filter, or took it and does not enforce it.
    """
    known = architecture()
    if known is None:
        raise OSError("no filter for this machine")
    load(program(known, IN_A_FOLDER if folder else ALLOWED))
    try:
        os.uname()  # is refused, and works without the filter
    except PermissionError:
        return
    raise OSError("the filter does not hold")


def as_bytes(steps: Sequence[Instruction]) -> bytes:
    """Return a filter as the kernel reads it: an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def load(steps: Sequence[Instruction]) -> None:
    """Have the kernel run a filter at every system call of this process, in all its threads.

    Needs no_new_privs.

    Raises:
        OSError: the kernel cannot or may not.
    """
    code = ctypes.create_string_buffer(as_bytes(steps))
    whole = _Program(len(steps), ctypes.addressof(code))
    address = ctypes.c_void_p(ctypes.addressof(whole))
    if system_call("seccomp", _SET_MODE_FILTER, _ALL_THREADS, address) != 0:
        raise OSError("a thread could not be confined")


def _numbers(names: Iterable[str], of: Architecture) -> Iterator[tuple[str, int]]:
    """Yield the calls that the architecture has; newer ones lack, for example, `open`."""
    return ((name, of.numbers[name]) for name in names if name in of.numbers)


def _own_abi(of: Architecture) -> Iterator[Instruction]:
    if of.foreign_from is not None:
        yield (JUMP_IF_NOT_LESS, 0, 1, of.foreign_from)
        yield (RETURN, 0, 0, KILL)


def _rule(number: int, demands: Iterable[Demand]) -> list[Instruction]:
    checks = chain.from_iterable(_check(demand) for demand in demands)
    return _exactly(number, [*checks, (RETURN, 0, 0, ALLOW)])


def _exactly(number: int, then: list[Instruction]) -> list[Instruction]:
    """Run the steps, the last of which returns, where a number was loaded; else skip them."""
    return [(JUMP_IF_EQUAL, 0, len(then), number), *then]


def _where(number: int, demand: Demand, then: Instruction) -> list[Instruction]:
    """Run a step, which returns, where a number was loaded and a demand is met; else go on."""
    (value,) = demand.values
    steps = [
        (LOAD_WORD, 0, 0, ARGUMENTS_OFFSET + _ARGUMENT_BYTES * demand.argument),
        (AND, 0, 0, demand.mask),
        (JUMP_IF_EQUAL, *((1, 0) if demand.forbidden else (0, 1)), value),
        then,
        (LOAD_WORD, 0, 0, NUMBER_OFFSET),
    ]
    return [(JUMP_IF_EQUAL, 0, len(steps), number), *steps]


def _check(demand: Demand) -> Iterator[Instruction]:
    """Go on behind these steps where the demand is met; refuse the call where it is not."""
    yield (LOAD_WORD, 0, 0, ARGUMENTS_OFFSET + _ARGUMENT_BYTES * demand.argument)
    yield (AND, 0, 0, demand.mask)
    if demand.forbidden:
        for value in demand.values:
            yield from _exactly(value, [_refusal(EPERM)])
        return
    for steps_left, value in zip(range(len(demand.values), 0, -1), demand.values, strict=True):
        yield (JUMP_IF_EQUAL, steps_left, 0, value)
    yield _refusal(EPERM)


def _refusal(number: int) -> Instruction:
    return (RETURN, 0, 0, REFUSE + number)
