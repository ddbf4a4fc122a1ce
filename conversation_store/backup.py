"""Copies of a store: back up, restore, and encrypt under another key.

`VACUUM INTO` makes a copy in one read transaction: the copy is consistent and has no empty pages,
and the bot can write in the meantime. (SQLite's backup interface starts again after each write of
another process, so under load it never ends.)
"""

import os
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from conversation_store import changes, deletion, messages, reminders
from conversation_store.atomic_replace import LOG, beside, discard, draft, finish, replace, sync
from conversation_store.connections import (
    Session,
    StoreFailed,
    StoreRefused,
    StoreUnreadable,
    WrongKey,
    in_memory,
    read,
    rekey,
    told,
    transact,
)
from conversation_store.database import locked, open_shared
from conversation_store.schema import (
    EMPTY,
    MIGRATIONS,
    Migrations,
    migrate,
    require_known,
    version_of,
)


@dataclass(frozen=True, slots=True)
class Restored:
    """Effects of going back to a copy.

    Attributes:
        messages: messages of the copy that owed an answer; they are closed.
        sends: messages of the bot in the copy that are not sent any more.
        aside: the replaced store, if there was one.
    """

    messages: int
    sends: int
    aside: Path | None


BEFORE_ENCRYPTION: Final = "before-encryption"
"""Suffix of a store that an encrypted copy replaces, until it is deleted."""

PLAIN_HEADER: Final = b"SQLite format 3\0"
"""First bytes of a file that is not encrypted (sqlite.org/fileformat.html)."""

RESTORED: Final = "restored"
"""Outcome of a message that waited in a copy when the copy became the store."""

_ACTS: Final = (
    "SELECT name, sql FROM sqlite_schema"
    " WHERE type IN ('trigger', 'view') OR sql LIKE 'create virtual%'"
)
"""Finds the parts of a schema that act. A foreign trigger could keep deleted rows."""

MEGABYTE: Final = 1_000_000


def backup(path: Path, key: str | None, target: Path) -> None:
    """Write a consistent copy under the same key, also next to a running bot. Blocks.

    Raises:
        StoreUnreadable: the key does not fit, or the file is not a store that this version knows.
        StoreFailed: the store is missing, or the copy cannot be written.
    """
    partial = beside(target, ".partial")
    with told("the copy cannot be written"):
        if target.exists():
            raise StoreFailed("the target exists already; it is never overwritten")
        partial.unlink(missing_ok=True)
        with open_shared(path, key, check=require_known) as store:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                _write_copy(store, partial)
                sync(partial)
                partial.rename(target)
                sync(target.absolute().parent)
            finally:
                partial.unlink(missing_ok=True)


def make_ready(path: Path, key: str | None, migrations: Migrations = MIGRATIONS) -> None:
    """Finish a replacement that a crash interrupted, and refuse a file of another program.

    The store must be `locked`.

    Raises:
        StoreUnreadable: see `upgrade_is_due`; the file stays unchanged.
    """
    with told("the store cannot be opened"):
        finish(path)
        discard(beside(path, f".{BEFORE_ENCRYPTION}"))
    upgrade_is_due(path, key, migrations)


def upgrade_is_due(path: Path, key: str | None, migrations: Migrations = MIGRATIONS) -> bool:
    """Return whether a store has an earlier schema. Changes nothing.

    Raises:
        StoreUnreadable: the key does not fit, or the file was made by a newer version.
    """
    with told("the store cannot be opened"):
        if not path.is_file() or not path.stat().st_size:
            return False
        with open_shared(path, key, check=partial(require_known, migrations=migrations)) as store:
            return EMPTY < read(store, version_of) < len(migrations)


def restore(path: Path, key: str | None, source: Path) -> Restored:
    """Replace a store by a copy, and keep the store next to it. Blocks.

    Messages that waited in the copy are closed: they may have been answered since. A copy
    of an earlier schema is brought up to date.

    Args:
        path: the store; it may be missing.
        key: of the copy, and from now on of the store.
        source: the copy; it is only read.

    Raises:
        StoreLocked: a bot runs on the store.
        StoreUnreadable: the key does not fit, or the copy is damaged, foreign or too new.
        StoreFailed: the copy is missing, or the disk refuses.
    """
    with locked(path) as real, told("the copy cannot be restored"):  # a link stays a link
        finish(real)
        if not source.is_file():
            raise StoreFailed("there is no such copy")
        if real.exists() and source.samefile(real):
            raise StoreFailed("the copy is the store itself")
        with draft(real) as new:
            _require_room(real, sum(part.stat().st_size for part in _parts(source)))
            _read_copy(source, new)
            with open_shared(new, key, check=_require_sound) as store:
                [(messages, sends)] = transact(store, [_close_debts])
                read(store, _fold_log)
            name = _free_name(real)
            aside = beside(real, f".{name}") if real.exists() else None
            replace(real, new, aside=name)
    return Restored(messages, sends, aside)


def encrypt(path: Path, key: str | None, new_key: str) -> None:
    """Replace a store by a copy under another key, and delete the old one. Blocks.

    A crash leaves the store either unchanged or complete under the new key.

    Args:
        key: the present key; None for a plain store.

    Raises:
        StoreLocked: a bot runs on the store.
        StoreUnreadable: the key does not fit, or the store is damaged or too new.
        StoreFailed: the store is missing, or the disk refuses.
    """
    with locked(path) as real, told("the store cannot be encrypted"):
        finish(real)
        with draft(real) as new:
            with open_shared(real, key, check=require_known) as store:
                _require_room(real, 2 * read(store, _used_bytes))  # the copy and its journal
                _write_copy(store, new)
            with open_shared(new, key, check=_require_sound) as copy:
                read(copy, _fold_log)
                rekey(copy, new_key)
            with open_shared(new, new_key, check=_require_sound) as copy:
                read(copy, _fold_log)
            if is_plain(new):
                raise StoreFailed("the copy is not encrypted")
            replace(real, new, aside=BEFORE_ENCRYPTION)
        discard(beside(real, f".{BEFORE_ENCRYPTION}"))


def is_there(path: Path) -> bool:
    """Return whether the store exists."""
    with told("the store cannot be opened"):
        return path.exists()


def is_plain(path: Path) -> bool:
    """Return whether the store exists and is not encrypted."""
    with told("the store cannot be opened"):
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(PLAIN_HEADER)) == PLAIN_HEADER


def key_fits(path: Path, key: str) -> bool:
    """Return whether a key opens a store.

    Raises:
        StoreUnreadable: the file was made by a newer version.
        StoreFailed: the store is missing, or the disk refuses.
    """
    try:
        with open_shared(path, key, check=require_known):
            return True
    except WrongKey:
        return False


def _require_room(path: Path, needed: int) -> None:
    disk = os.statvfs(path.parent)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise StoreRefused(
            f"that needs {_megabytes(needed)} MB on the disk of the store,"
            f" {_megabytes(free)} MB are free"
        )


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:,.1f}"


def _used_bytes(db: Session) -> int:
    pages = db.value("PRAGMA page_count") - db.value("PRAGMA freelist_count")
    return int(pages * db.value("PRAGMA page_size"))


def _write_copy(store: Any, target: Path) -> None:
    absolute = str(target.absolute())  # so that no name is taken for a URI
    read(store, lambda db: db.run("VACUUM INTO ?", absolute))


def _read_copy(source: Path, target: Path) -> None:
    """Copy a file that may be any database, together with its log, without opening it."""
    for part in _parts(source):
        copy = beside(target, part.name.removeprefix(source.name))
        os.close(os.open(copy, os.O_CREAT | os.O_WRONLY, 0o600))
        shutil.copyfile(part, copy)


def _parts(path: Path) -> list[Path]:
    """Return the files of a database that no process has open."""
    return [part for part in (path, beside(path, LOG)) if part.is_file()]


def _fold_log(db: Session) -> None:
    """Fold the log into the database, which is to be moved as one file."""
    db.run("PRAGMA journal_mode = DELETE")


def _require_sound(db: Session) -> None:
    require_known(db)
    tables = {name for (name,) in db.run("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    with in_memory() as own:
        migrate(own)
        acts = own.run(_ACTS)
    if "inbox" not in tables or not set(db.run(_ACTS)) <= set(acts):
        raise StoreUnreadable("the file is no store of this program")
    db.run("PRAGMA cache_size = -65536")
    if db.value("PRAGMA integrity_check(1)") != "ok":
        raise StoreUnreadable("the copy is damaged")


def _close_debts(db: Session) -> tuple[int, int]:
    """Close everything that a copy would still answer, send or ask; carry out waiting deletions.

    Returns:
        the number of messages, and the number of sends.
    """
    migrate(db)
    now = time.time_ns() // 1_000_000
    for accepted in messages.waiting(db):
        if accepted.message.kind == "deletion":
            changes.carry_out(db, accepted)
    owed = [row for (row,) in db.run("SELECT id FROM inbox WHERE state = 'waiting'")]
    for row in owed:
        deletion.abandon(db, row)
        messages.close(db, row, RESTORED)
    unsent = db.run("DELETE FROM outbox WHERE state = 'waiting' RETURNING id")
    db.run("DELETE FROM exchanges WHERE state = 'waiting'")
    reminders.close_debts(db, now)
    db.run("UPDATE people SET greeted = 1")
    return len(owed), len(unsent)


def _free_name(path: Path) -> str:
    """Return an unused suffix for the name of the replaced store."""
    moment = datetime.now(UTC).strftime("replaced-%Y%m%d-%H%M%S")
    names = (f"{moment}-{number}" if number else moment for number in count())
    return next(name for name in names if not _parts(beside(path, f".{name}")))
