"""Folders that strangers' programs may have filled: given back to their owner, and deleted.

A program may have closed folders and files, and made them deep or wide. The owner gets rights back
from outside, by descriptors of the very things, so that no link can take their place. Not every
wall around a folder holds a change of rights, so this is not allowed inside.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from tools.sandbox.syscalls import open_below

MAX_DEPTH: Final = 34
"""A little more than the depth of a workspace."""
MAX_ENTRIES: Final = 25_000
"""A little more than the files of a workspace."""
MAX_NAMES: Final = 20_000
"""Names read at once; a folder may have more."""
_FOLDER, _FILE = 0o700, 0o400
_LENDS_RIGHTS: Final = stat.S_ISUID | stat.S_ISGID
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_DIRECTORY
LEVELS: Final = 32
"""Folders in each other that are open at the same time."""


def give_back(folder: Path) -> None:
    """Give a folder and all below it back to the owner, within the bounds of a workspace.

    No file in it runs with its owner's rights any more. Anything but files and folders, and
    anything of other owners, stays as it is.
    """
    with suppress(OSError):
        _give_below(os.open(folder, _LOOK), MAX_ENTRIES, MAX_DEPTH)


def _give_below(seen: int, entries: int, depth: int) -> int:
    """Go through a folder by a descriptor, which is closed then; return the entries left."""
    with closing(seen):
        if not _give(seen) or not depth:
            return entries
        folder = os.open(f"/proc/self/fd/{seen}", _READ | os.O_CLOEXEC)
    with closing(folder):
        names = _names(folder, entries)
        entries -= len(names)
        for name in names:
            with suppress(OSError):  # gone in the meantime, or of another owner
                below = os.open(name, _LOOK, dir_fd=folder)
                entries = _give_below(below, entries, depth - 1)
        return entries


def _give(seen: int) -> bool:
    """Give a file or folder back to the owner; return whether it is a folder."""
    mode = os.fstat(seen).st_mode
    is_folder = stat.S_ISDIR(mode)
    if is_folder or stat.S_ISREG(mode):
        before = stat.S_IMODE(mode)
        after = (before | (_FOLDER if is_folder else _FILE)) & ~_LENDS_RIGHTS
        if after != before:
            Path(f"/proc/self/fd/{seen}").chmod(after)
    return is_folder


def remove_tree(folder: Path) -> bool:
    """Delete a folder with everything in it, also closed folders; return whether it is gone."""
    with suppress(OSError), closing(os.open(folder.parent, _READ | os.O_CLOEXEC)) as parent:
        remove(folder.name, parent, is_closed=True)
    return not os.path.lexists(folder)


def remove(name: str, parent: int, *, is_closed: bool = False) -> None:
    """Delete a file or a folder in another folder, if it exists; raises OSError. Follow no links.

    If folders may be closed, this process must be allowed to change their rights.
    """
    _remove(name, parent, None, is_closed=is_closed)


def _remove(name: str, parent: int, top: int | None, *, level: int = 0, is_closed: bool) -> None:
    """Delete a file or a folder.

    Deep folders are moved to the top, so that few descriptors are open at a time.
    """
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    if is_closed:  # before the folder is opened or moved
        with closing(os.open(name, _LOOK, dir_fd=parent)) as seen:
            _give(seen)
    if top is not None and level > LEVELS:
        os.rename(name, f".{secrets.token_hex(8)}", src_dir_fd=parent, dst_dir_fd=top)
        return
    with closing(open_below(parent, name, _READ | os.O_NOFOLLOW)) as folder:
        while names := _names(folder):
            for below in names:
                place = folder if top is None else top
                _remove(below, folder, place, level=level + 1, is_closed=is_closed)
    os.rmdir(name, dir_fd=parent)


def _names(folder: int, most: int = MAX_NAMES) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most)]


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor after the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
