"""Opening files below a folder, wherever a path seems to lead.

The kernel resolves each path as if the folder were the root of everything: `..`, absolute paths and
links end inside, also while somebody exchanges them. Source: openat2(2).
"""

import ctypes
import os
from errno import EAGAIN
from typing import Final

from sandbox.syscalls import architecture, system_call

_IN_ROOT, _NO_MAGIC_LINKS, _NO_OTHER_DISK = 0x10, 0x02, 0x01
_MOST_RACES: Final = 8
"""How often a path is looked up again that somebody changed meanwhile."""


class _How(ctypes.Structure):
    """A struct open_how."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def open_below(folder: int, path: str, flags: int, *, mode: int = 0) -> int:
    """Open a path below a folder and return its descriptor.

    Args:
        folder: a descriptor of it.
        path: as somebody wrote it.
        flags: as for `os.open`.
        mode: of a file that is made.

    Raises:
        OSError: as for `os.open`.
        ValueError: the path has a null character in it.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a null character in a path")
    how = _How(flags | os.O_CLOEXEC, mode, _IN_ROOT | _NO_MAGIC_LINKS | _NO_OTHER_DISK)
    for races_left in reversed(range(_MOST_RACES)):
        try:
            return system_call(
                "openat2",
                *(folder, ctypes.c_char_p(name)),
                *(ctypes.c_void_p(ctypes.addressof(how)), ctypes.sizeof(how)),
            )
        except OSError as error:
            if error.errno != EAGAIN or not races_left:
                raise
    raise AssertionError("the loop returns or raises")


architecture()  # looked up while the kernel still says it
