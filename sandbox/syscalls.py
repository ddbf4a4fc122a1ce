"""System calls by number, for what neither Python nor the C library offers.

Sources: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux;
AUDIT_ARCH_* in include/uapi/linux/audit.h.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

_BY_NAME: Final[Mapping[str, tuple[int, int | None]]] = {
    "read": (0, 63),
    "write": (1, 64),
    "open": (2, None),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "ioctl": (16, 29),
    "access": (21, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "setitimer": (38, 103),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "fsync": (74, 82),
    "ftruncate": (77, 46),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrlimit": (97, None),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "sigaltstack": (131, 132),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "openat": (257, 56),
    "mkdirat": (258, 34),
    "newfstatat": (262, 79),
    "unlinkat": (263, 35),
    "renameat": (264, 38),
    "linkat": (265, 37),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "prlimit64": (302, 261),
    "getcpu": (309, 168),
    "seccomp": (317, 277),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "openat2": (437, 437),
    "faccessat2": (439, 439),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor's way of making system calls.

    Attributes:
        audit: its name in the kernel, AUDIT_ARCH_*.
        numbers: of the system calls that it has.
        foreign_from: calls from this number on belong to another ABI (x32); None where there is
            no such ABI.
    """

    audit: int
    numbers: Mapping[str, int]
    foreign_from: int | None = None


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(
        0xC000003E, {name: x86 for name, (x86, _) in _BY_NAME.items()}, foreign_from=0x40000000
    ),
    "aarch64": Architecture(
        0xC00000B7, {name: arm for name, (_, arm) in _BY_NAME.items() if arm is not None}
    ),
}
"""By the name that uname(2) has for the machine."""


@cache
def architecture() -> Architecture | None:
    """Return that of this process; None where its numbers are not known."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    return ARCHITECTURES.get(os.uname().machine)


def system_call(name: str, *arguments: int | ctypes.c_void_p | ctypes.c_char_p) -> int:
    """Make a system call.

    Args:
        name: one of those in the table of this module.
        arguments: integers, addresses as `ctypes.c_void_p`, and texts as `ctypes.c_char_p`.

    Raises:
        OSError: the kernel refuses, or this machine has no such call.
    """
    known = architecture()
    if known is None:
        raise OSError("no system calls are known for this machine")
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    return checked(libc().syscall(ctypes.c_long(known.numbers[name]), *words), name)


def checked(result: int, name: str) -> int:
    """Return what a function of the C library returned; OSError where that means failure."""
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def libc() -> ctypes.CDLL:
    """Return the C library that this process has loaded."""
    return ctypes.CDLL(None, use_errno=True)
