"""Landlock: no access to paths, TCP ports, sockets and processes outside, except one folder.

It denies every access that it handles, unless a rule allows it. For a sandbox without a folder it
is a second wall behind seccomp. A sandbox or a program with a folder is confined to that folder.

Source: https://docs.kernel.org/userspace-api/landlock.html; linux/landlock.h.
"""

import os
import stat
import struct
from collections.abc import Iterable, Mapping
from typing import Final

from tools.sandbox.syscalls import system_call

_ASK_VERSION: Final = 1
_FILE_RIGHTS: Final[Mapping[int, int]] = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file rights from a version on; they are the lowest bits."""
_NETWORK_FROM, _NETWORK_RIGHTS = 4, 0b11  # bind and connect over TCP
_SCOPES_FROM, _SCOPES = 6, 0b11  # abstract Unix sockets, and signals

RENAMES_FROM: Final = 2
"""Earlier versions let no file move from one folder to another."""
TRUNCATION_FROM: Final = 3
"""Earlier versions let every file be emptied, also outside."""
_PATH_BENEATH: Final = 1
# Write and read files, read folders, remove folders and files, make folders and files, move,
# truncate; no devices and no links.
_IN_A_FOLDER: Final = sum(1 << right for right in (1, 2, 3, 4, 5, 7, 8, 13, 14))
_TO_READ: Final = 0b1100  # read files, read folders
_TO_RUN: Final = 0b1101  # run files, read files, read folders
_OF_FILES: Final = 0b111 | 1 << 14  # run, write, read, truncate
_TO_LINK: Final = 1 << 12
_TO_USE: Final = 0b110  # write and read files
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
"""Devices that every program expects."""


def version() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none."""
    try:
        return system_call("landlock_create_ruleset", 0, 0, _ASK_VERSION)
    except OSError:
        return 0


def install(
    *, folder: bool = False, read_only: bool = False, readable: Iterable[str] | None = None
) -> None:
    """Deny this process everything that the kernel's Landlock handles; OSError if that fails.

    Needs no_new_privs and two free descriptors.

    Args:
        folder: allow files and folders below the present one.
        read_only: allow only to read them.
        readable: other files and folders to read and run; None: run nothing at all.
    """
    here = version()
    if folder and here < RENAMES_FROM:
        raise OSError("this Landlock lets no file be moved")
    if readable is not None and here < TRUNCATION_FROM:
        raise OSError("this Landlock lets every file be emptied")
    files = (1 << max((n for since, n in _FILE_RIGHTS.items() if since <= here), default=0)) - 1
    network = _NETWORK_RIGHTS if here >= _NETWORK_FROM else 0
    scopes = _SCOPES if here >= _SCOPES_FROM else 0
    # An older kernel accepts the longer structure if the fields that it does not know are zero.
    rules = struct.pack("=QQQ", files, network, scopes)  # struct landlock_ruleset_attr
    ruleset = system_call("landlock_create_ruleset", rules, len(rules), 0)
    allowed: list[tuple[str, int]] = []
    if folder:
        runs = 0 if readable is None else _TO_RUN | _TO_LINK
        allowed.append((".", (_TO_READ if read_only else _IN_A_FOLDER) | runs))
    if readable is not None:
        allowed += [*((path, _TO_RUN) for path in readable), *((one, _TO_USE) for one in _DEVICES)]
    try:
        for path, rights in allowed:
            _allow_below(path, ruleset, rights & files)
        system_call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow_below(path: str, ruleset: int, rights: int) -> None:
    """Add a rule for a file, or for a folder and all below it; none if it does not exist."""
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, parent)  # struct landlock_path_beneath_attr
        system_call("landlock_add_rule", ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(parent)
