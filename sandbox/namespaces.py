"""Namespaces of a sandbox's own, in which there is nothing: no process, network, queue, host name.

A process enters a PID namespace by being born in it, and all of one end with its first process. So
the process that is started divides into three: the last one works, the first one of the namespace
and the one outside only wait, and end in the same way. The one that works may leave its group and
parent where nothing else holds it; whoever kills the group still ends it with the namespace.

A sandbox that works in a folder is given it as its whole file system: there is nothing else that
a link or a path could lead to.

Source: namespaces(7), user_namespaces(7), pid_namespaces(7), capset(2), pivot_root(2),
mount_setattr(2).
"""

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from sandbox.syscalls import checked, libc, system_call

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
_FIRST: Final = 1
_BY_SIGNAL: Final = 128
"""Exit codes above it say by which signal a process ended, as shells have it."""
_CAPABILITIES_VERSION_3: Final = 0x20080522
_HERE: Final = -100  # AT_FDCWD
_BIND, _WITH_ALL_BELOW, _PRIVATE = 0x1000, 0x4000, 0x40000
_DETACHED: Final = 2
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_PROGRAMS = 0x1, 0x2, 0x4, 0x8


class _CapabilityHeader(ctypes.Structure):
    """A struct __user_cap_header_struct."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _MountAttributes(ctypes.Structure):
    """A struct mount_attr."""

    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("user_namespace", ctypes.c_uint64),
    )


def unshare(folder: str | None = None, *, read_only: bool = False) -> None:
    """Leave every namespace for a new one; the PID namespace is entered by `divide`.

    Args:
        folder: becomes the whole file system; None: nothing is mounted anew.
        read_only: nothing in it can be changed.

    Raises:
        OSError: the kernel, or what this program runs in, does not allow it.
    """
    checked(libc().unshare(_EVERY_KIND), "unshare")
    if folder is not None:
        _live_in(folder, read_only=read_only)


def _live_in(folder: str, *, read_only: bool) -> None:
    """Make a folder the root, and let go of everything else; nothing in it is a program."""
    _mount("none", "/", _PRIVATE | _WITH_ALL_BELOW)
    _mount(folder, folder, _BIND | _WITH_ALL_BELOW)
    flags = _NO_SUID | _NO_DEVICES | _NO_PROGRAMS | (_READ_ONLY if read_only else 0)
    attributes = _MountAttributes(set=flags)
    system_call(
        "mount_setattr",
        *(_HERE, _text(folder), 0),
        *(ctypes.c_void_p(ctypes.addressof(attributes)), ctypes.sizeof(attributes)),
    )
    os.chdir(folder)
    system_call("pivot_root", _text("."), _text("."))  # the old root now lies over the new one
    checked(libc().umount2(b".", _DETACHED), "umount2")
    os.chdir("/")


def _mount(source: str, target: str, flags: int) -> None:
    names = (os.fsencode(source), os.fsencode(target))
    checked(libc().mount(*names, None, ctypes.c_ulong(flags), None), "mount")


def _text(name: str) -> ctypes.c_char_p:
    return ctypes.c_char_p(os.fsencode(name))


def divide(confine_waiting: Callable[[], object]) -> None:
    """Go on alone in the new PID namespace; standard input and output go along.

    Args:
        confine_waiting: confines each of the processes that wait, which never return from here.

    Raises:
        OSError: there may be no further process.
    """
    for _ in ("the first process of the namespace", "the one that works"):
        child = os.fork()
        if child:
            confine_waiting()
            _wait_for(child)


def _wait_for(child: int) -> NoReturn:
    """End when a child has ended: with its exit code, or by the same signal."""
    os.close(0)
    os.close(1)  # else nobody would see that the child has closed it
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else code - _BY_SIGNAL
    # Signals of its own do not end the first process of a namespace: it passes them on as a code.
    if number > 0 and os.getpid() != _FIRST:
        with suppress(OSError):  # SIGKILL has no handler that could be reset
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(_BY_SIGNAL + number if number > 0 else code)


def drop_capabilities() -> None:
    """Give up all capabilities, also those that a new user namespace brings.

    Where that is refused (the kernel itself never does), a filter from outside forbids it, and
    has forbidden namespaces before it.
    """
    header = _CapabilityHeader(_CAPABILITIES_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    with suppress(OSError):
        checked(libc().capset(ctypes.byref(header), ctypes.byref(none)), "capset")
