"""Landlock: no path, no TCP port, no socket and no process outside, but perhaps one folder.

It denies what it is told to handle and no rule allows. Without a folder there are no rules, and it
is a wall behind seccomp, for descriptors that somebody might get after all. With one, it holds
whoever works there inside.

Source: https://docs.kernel.org/userspace-api/landlock.html; linux/landlock.h.
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final

from sandbox.syscalls import system_call

_ASK_VERSION: Final = 1
_FILE_RIGHTS: Final[Mapping[int, int]] = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights there are from a version of the interface on; they are the lowest bits."""
_NETWORK_FROM, _NETWORK_RIGHTS = 4, 0b11  # bind and connect over TCP
_SCOPES_FROM, _SCOPES = 6, 0b11  # abstract Unix sockets, and signals

RENAMES_FROM: Final = 2
"""From this version on a file can go from one folder to another inside what is allowed."""
TRUNCATION_FROM: Final = 3
"""From this version on no file outside what is allowed can be emptied."""
_PATH_BENEATH: Final = 1
_IN_A_FOLDER: Final = sum(
    1 << right
    for right in (
        *(1, 2, 3),  # write and read files, read folders
        *(4, 5, 7, 8),  # remove folders and files, make folders and files; no devices, no links
        *(13, 14),  # move, truncate
    )
)


_TO_READ: Final = 0b1100  # read files, read folders
_TO_RUN: Final = 0b1101  # run files, read files, read folders
_OF_FILES: Final = 0b111 | 1 << 14  # run, write, read, truncate
_TO_LINK: Final = 1 << 12
_TO_USE: Final = 0b110  # write and read files
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
"""What every program takes to be there."""


class _PathBeneath(ctypes.Structure):
    """A struct landlock_path_beneath_attr: what may be done below a folder."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Ruleset(ctypes.Structure):
    """A struct landlock_ruleset_attr: what is denied unless a rule allows it."""

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


def version() -> int:
    """Return the version of the kernel's Landlock; 0 where there is none."""
    try:
        return system_call("landlock_create_ruleset", ctypes.c_void_p(), 0, _ASK_VERSION)
    except OSError:
        return 0


def install(
    *, folder: bool = False, read_only: bool = False, readable: Iterable[str] | None = None
) -> None:
    """Deny this process everything that the kernel's Landlock knows of.

    Needs no_new_privs and two free descriptors.

    Args:
        folder: files and folders below the present one are allowed.
        read_only: they may only be read.
        readable: what may be read and run besides; None: nothing, and nothing of the folder is run.

    Raises:
        OSError: the kernel cannot or may not.
    """
    here = version()
    if folder and here < RENAMES_FROM:
        raise OSError("this Landlock lets no file be moved")
    if readable is not None and here < TRUNCATION_FROM:
        raise OSError("this Landlock lets every file be emptied")
    rules = _Ruleset(
        files=(1 << max((n for since, n in _FILE_RIGHTS.items() if since <= here), default=0)) - 1,
        network=_NETWORK_RIGHTS if here >= _NETWORK_FROM else 0,
        scopes=_SCOPES if here >= _SCOPES_FROM else 0,
    )
    address = ctypes.c_void_p(ctypes.addressof(rules))
    # An older kernel takes the longer structure, as what it does not know is zero.
    ruleset = system_call("landlock_create_ruleset", address, ctypes.sizeof(rules), 0)
    try:
        if folder:
            runs = 0 if readable is None else _TO_RUN | _TO_LINK
            rights = _TO_READ if read_only else _IN_A_FOLDER
            _allow_below(".", ruleset, (rights | runs) & rules.files)
        for path in readable or ():
            _allow_below(path, ruleset, _TO_RUN & rules.files)
        for device in () if readable is None else _DEVICES:
            _allow_below(device, ruleset, _TO_USE & rules.files)
        system_call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_below(path: str, ruleset: int, rights: int) -> None:
    """Add a rule for a folder and all below it, or for a file; nothing where there is none."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, parent)
        address = ctypes.c_void_p(ctypes.addressof(rule))
        system_call("landlock_add_rule", ruleset, _PATH_BENEATH, address, 0)
    finally:
        os.close(parent)
