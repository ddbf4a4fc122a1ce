"""Namespaces of a sandbox's own, in which there is nothing: no network, no queues, no host name.

The user namespace keeps other processes of the same user out of reach of ptrace. What the process
might start would be in a PID namespace of its own; the process itself is not. To be inside, it
would have to be a child of the process that the bot starts. Such a child leads no process group:
without seccomp it can leave the group (setsid), refuse to end with its parent (PR_SET_PDEATHSIG)
and outlive the bot's kill. The leader of a session cannot leave its group.
A third process between the two closes that, and is not worth it: only without seccomp would it add
anything. Signals to the bot's user are held by seccomp, or by Landlock from version 6 on; where
both are missing, by nothing.

Source: namespaces(7), user_namespaces(7), capset(2).
"""

import ctypes
from contextlib import suppress
from typing import Final

from tools.sandbox.syscalls import checked, libc

_NEW_USER: Final = 0x10000000
_NEW_PID: Final = 0x20000000
_NEW_NETWORK: Final = 0x40000000
_NEW_MOUNTS: Final = 0x00020000
_NEW_IPC: Final = 0x08000000
_NEW_HOST_NAME: Final = 0x04000000
_NEW_CGROUPS: Final = 0x02000000
_EVERY_KIND: Final = (
    _NEW_USER | _NEW_PID | _NEW_NETWORK | _NEW_MOUNTS | _NEW_IPC | _NEW_HOST_NAME | _NEW_CGROUPS
)
_CAPABILITIES_VERSION_3: Final = 0x20080522


class _CapabilityHeader(ctypes.Structure):
    """A struct __user_cap_header_struct."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def enter() -> None:
    """Leave every namespace for a new one.

    Raises:
        OSError: the kernel, or what this program runs in, does not allow it.
    """
    checked(libc().unshare(_EVERY_KIND), "unshare")


def drop_capabilities() -> None:
    """Give up all capabilities, also those that a new user namespace brings.

    Where that is refused (the kernel itself never does), a filter from outside forbids it, and
    has forbidden namespaces before it.
    """
    header = _CapabilityHeader(_CAPABILITIES_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    with suppress(OSError):
        checked(libc().capset(ctypes.byref(header), ctypes.byref(none)), "capset")
