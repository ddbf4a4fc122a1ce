"""A sandbox's own, empty namespaces: no process, network, queue or host name of others.

A process enters a PID namespace by being born in it, and all processes in it end with its first
one. So the process that is started divides into three: the last one works; the first one of the
namespace and the one outside only wait, and end in the same way. Killing the outer process ends the
whole namespace, even if the last process has left its group and parent.

A sandbox that works in a folder has it as its whole file system: no link or path leads elsewhere.

Source: namespaces(7), user_namespaces(7), pid_namespaces(7), capset(2), pivot_root(2),
mount_setattr(2).
"""

import ctypes
import os
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from tools.sandbox.syscalls import checked, libc, system_call

# Users, processes, network, mounts, IPC, host name and control groups: CLONE_NEW….
_EVERY_KIND: Final = (
    0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x08000000 | 0x04000000 | 0x02000000
)
_FIRST: Final = 1
_BY_SIGNAL: Final = 128
"""Exit codes above it say which signal ended a process, as in shells."""
_CAPABILITIES_VERSION_3: Final = 0x20080522
_CAPABILITIES_BYTES: Final = 24
_HERE: Final = -100  # AT_FDCWD
_BIND, _WITH_ALL_BELOW, _PRIVATE = 0x1000, 0x4000, 0x40000
_DETACHED: Final = 2
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 0x1, 0x2, 0x4, 0x8


def unshare(folder: str | None = None, *, read_only: bool = False) -> None:
    """Leave every namespace for a new one; OSError if that is forbidden.

    A folder, perhaps a read-only one, becomes the whole file system. `divide` enters the PID
    namespace.
    """
    checked(libc().unshare(_EVERY_KIND), "unshare")
    if folder is not None:
        _live_in(folder, read_only=read_only)


def _live_in(folder: str, *, read_only: bool) -> None:
    """Make a folder the root, and unmount everything else; nothing in it can be run."""
    _mount("none", "/", _PRIVATE | _WITH_ALL_BELOW)
    _mount(folder, folder, _BIND | _WITH_ALL_BELOW)
    flags = _NO_SUID | _NO_DEVICES | _NO_PROGRAMS | (_READ_ONLY if read_only else 0)
    attributes = struct.pack("=QQQQ", flags, 0, 0, 0)  # struct mount_attr
    system_call("mount_setattr", _HERE, os.fsencode(folder), 0, attributes, len(attributes))
    os.chdir(folder)
    system_call("pivot_root", b".", b".")  # the old root now lies over the new one
    checked(libc().umount2(b".", _DETACHED), "umount2")
    os.chdir("/")


def _mount(source: str, target: str, flags: int) -> None:
    names = (os.fsencode(source), os.fsencode(target))
    checked(libc().mount(*names, None, ctypes.c_ulong(flags), None), "mount")


def divide(confine_waiting: Callable[[], object]) -> None:
    """Continue alone in the new PID namespace; OSError if a process cannot be started.

    The processes that wait confine themselves and never return from here.
    """
    for _ in ("the first process of the namespace", "the one that works"):
        child = os.fork()
        if child:
            confine_waiting()
            _wait_for(child)


def _wait_for(child: int) -> NoReturn:
    """End when a child has ended: with its exit code, or by the same signal."""
    os.close(0)
    os.close(1)  # otherwise the bot would not see that the child has closed it
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - _BY_SIGNAL
    # A signal of its own does not end the first process of a namespace: it exits with a code.
    if number > 0 and os.getpid() != _FIRST:
        with suppress(OSError):  # SIGKILL has no handler that could be reset
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(_BY_SIGNAL + number if number > 0 else code)


def drop_capabilities() -> None:
    """Give up all capabilities, also the new ones of a user namespace.

    The kernel itself never refuses this. A filter from outside that does so has forbidden
    namespaces before.
    """
    header = struct.pack("=Ii", _CAPABILITIES_VERSION_3, 0)  # struct __user_cap_header_struct
    with suppress(OSError):
        checked(libc().capset(header, bytes(_CAPABILITIES_BYTES)), "capset")
