"""Replaces a store by another one, so that a crash leaves either the old or the new store.

The new store is completed under a temporary name. The rename to `<store>.next-<…>` decides: from
then on, the next process that opens the store finishes the replacement, also after a crash. The
present store and its write-ahead log are renamed to `<store>.<…>`, and the new one to `<store>`.
The store must be `locked`. Every function raises OSError if the disk refuses.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from conversation_store.connections import StoreFailed

DRAFT: Final = ".draft"
DECIDED: Final = ".next-"

LOG: Final = "-wal"
"""Suffix of SQLite for the write-ahead log of a database."""

RECREATED: Final = ("-shm",)
"""Suffixes of files that SQLite creates again from the log."""


def beside(path: Path, ending: str) -> Path:
    """Return the path of a file next to another one, by the suffix of its name."""
    return path.with_name(path.name + ending)


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """Provide a private, empty file next to a store, for another store.

    Delete the file afterwards if it was not moved.
    """
    made = beside(path, DRAFT)
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield made
    finally:
        discard(made)


def replace(path: Path, new: Path, *, aside: str) -> None:
    """Put a store, which no process has open, in the place of another one.

    Args:
        path: the place; the file may be missing.
        aside: suffix of the present store's new name, after a dot.

    Raises:
        StoreFailed: a file has that name.
    """
    sync(new)
    new.rename(beside(path, DECIDED + aside))
    sync(path.parent)
    finish(path)


def finish(path: Path) -> None:
    """Finish a replacement that was decided before a crash, and delete drafts.

    Raises:
        StoreFailed: a file has the name that the present store is to get.
    """
    prefix = path.name + DECIDED
    for decided in sorted(path.parent.glob(f"*{DECIDED}*")):
        if not decided.name.startswith(prefix):
            continue
        _set_aside(path, beside(path, "." + decided.name.removeprefix(prefix)))
        decided.rename(path)
        sync(path.parent)
    discard(beside(path, DRAFT))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _set_aside(path: Path, aside: Path) -> None:
    for ending in ("", LOG):
        present, kept = beside(path, ending), beside(aside, ending)
        if not present.exists():
            continue
        if kept.exists():
            raise StoreFailed(f"{kept.name} is in the way next to the store: give it another name")
        present.rename(kept)
        kept.chmod(0o600)
        os.utime(kept)  # its age counts from now
    for ending in RECREATED:
        beside(path, ending).unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Delete a store, if it is there, with all files that SQLite makes for it."""
    for ending in ("", LOG, *RECREATED, "-journal"):
        beside(path, ending).unlink(missing_ok=True)
