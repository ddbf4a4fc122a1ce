"""System calls by number, for what neither Python nor the C library offers.

Source: AUDIT_ARCH_* in include/uapi/linux/audit.h.
"""

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from sandbox.call_numbers import BY_NAME


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
        0xC000003E, {name: x86 for name, (x86, _) in BY_NAME.items()}, foreign_from=0x40000000
    ),
    "aarch64": Architecture(
        0xC00000B7, {name: arm for name, (_, arm) in BY_NAME.items() if arm is not None}
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
