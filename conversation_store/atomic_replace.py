"""How a store takes the place of another, so that a crash leaves the old one or the new one.

The new store is made whole under a name that means nothing. Giving it the name `<store>.next-<…>`
decides: from then on whoever opens the store, also after a crash, first finishes what was decided.
The present store, with its write-ahead log, is named `<store>.<…>`, and the new one `<store>`.
Everything here needs the store to be `locked`; no store that was there is ever deleted.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from conversation_store.errors import StoreFailed

DRAFT: Final = ".draft"
DECIDED: Final = ".next-"

LOG: Final = "-wal"
"""What SQLite appends to the name of a database for its write-ahead log."""

MADE_ANEW: Final = ("-shm",)
"""What SQLite makes again from the log."""


def beside(path: Path, ending: str) -> Path:
    """Return the path of what belongs to a file and stands beside it."""
    return path.with_name(path.name + ending)


@contextmanager
def draft(path: Path) -> Iterator[Path]:
    """Provide a private, empty file beside a store in which another one can be made.

    What is left of it in the end is deleted.

    Raises:
        OSError: the disk does not let it.
    """
    made = beside(path, DRAFT)
    os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        yield made
    finally:
        _discard(made)


def replace(path: Path, new: Path, *, aside: str) -> None:
    """Put a store, which nobody has open, in the place of another one.

    Args:
        path: the place; there may be none yet.
        new: a file beside it.
        aside: what the present one is called afterwards, behind its name and a dot.

    Raises:
        StoreFailed: there is something of that name.
        OSError: the disk does not let it.
    """
    sync(new)
    new.rename(beside(path, DECIDED + aside))
    sync(path.parent)
    finish(path)


def finish(path: Path) -> None:
    """Finish what was decided before a crash, and forget what was not.

    Raises:
        StoreFailed: there is something already where the present store belongs.
        OSError: the disk does not let it.
    """
    prefix = path.name + DECIDED
    for decided in sorted(path.parent.glob(f"*{DECIDED}*")):
        if not decided.name.startswith(prefix):
            continue
        _set_aside(path, beside(path, "." + decided.name.removeprefix(prefix)))
        decided.rename(path)
        sync(path.parent)
    _discard(beside(path, DRAFT))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk.

    Raises:
        OSError: they are not.
    """
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
            raise StoreFailed(f"{kept.name} is in the way beside the store: give it another name")
        present.rename(kept)
        kept.chmod(0o600)
        os.utime(kept)  # it is as old as its name
    for ending in MADE_ANEW:
        beside(path, ending).unlink(missing_ok=True)


def _discard(path: Path) -> None:
    for ending in ("", LOG, *MADE_ANEW, "-journal"):
        beside(path, ending).unlink(missing_ok=True)
