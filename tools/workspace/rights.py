"""Gives the owner back what a program has taken from itself: the way into folders and files.

It is done from outside, by descriptors of the very things, so that no link can take their place.
Inside it could not be allowed: not every wall around a folder holds a change of rights.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

MAX_DEPTH: Final = 34
"""Somewhat more than a workspace may be deep."""
MAX_ENTRIES: Final = 25_000
"""Somewhat more than a workspace may have."""
_FOLDER, _FILE = 0o700, 0o400
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def give_back(folder: Path) -> None:
    """Let the owner into a folder and all below it, as far as the bounds of a workspace go.

    What is no file and no folder, or belongs to somebody else, stays as it is.
    """
    with suppress(OSError):
        _below(os.open(folder, _LOOK), MAX_ENTRIES, MAX_DEPTH)


def open_up(name: str, parent: int) -> None:
    """Let the owner into something in a folder; raises OSError where it is gone.

    Args:
        name: of it.
        parent: a descriptor of the folder.
    """
    with _seen(name, parent) as seen:
        _give(seen)


def _below(seen: int, entries: int, depth: int) -> int:
    """Go through what a descriptor, which is closed then, has seen; return the entries left."""
    try:
        if not _give(seen) or not depth:
            return entries
        folder = os.open(_path(seen), _READ)
    finally:
        os.close(seen)
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in islice(found, entries)]
        entries -= len(names)
        for name in names:
            with suppress(OSError):  # gone meanwhile, or somebody else's
                entries = _below(os.open(name, _LOOK, dir_fd=folder), entries, depth - 1)
        return entries
    finally:
        os.close(folder)


def _give(seen: int) -> bool:
    """Let the owner into what a descriptor has seen; return whether it is a folder."""
    mode = os.fstat(seen).st_mode
    is_folder = stat.S_ISDIR(mode)
    wanted = _FOLDER if is_folder else _FILE if stat.S_ISREG(mode) else 0
    if mode & wanted != wanted:
        _path(seen).chmod(stat.S_IMODE(mode) | wanted)
    return is_folder


@contextmanager
def _seen(name: str, parent: int) -> Iterator[int]:
    seen = os.open(name, _LOOK, dir_fd=parent)
    try:
        yield seen
    finally:
        os.close(seen)


def _path(seen: int) -> Path:
    return Path(f"/proc/self/fd/{seen}")
