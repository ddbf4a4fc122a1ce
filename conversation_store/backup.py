"""Copies of a store: to keep, to go back to, before an upgrade, and under another key.

A copy is made by `VACUUM INTO`, in one read transaction: it is consistent, the bot writes on
meanwhile, and no page is copied that holds nothing. (SQLite's backup interface begins again
whenever another process writes, so under load it never ends.)
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

from conversation_store import deletions, inbox, reminders, turns
from conversation_store.atomic_replace import LOG, beside, draft, finish, replace, sync
from conversation_store.database import Execute, SharedDatabase, locked, open_shared
from conversation_store.errors import StoreFailed, StoreRefused, StoreUnreadable, WrongKey
from conversation_store.migrations import (
    EMPTY,
    MIGRATIONS,
    m0016_memory,
    migrate,
    refuse_newer,
    version_of,
)
from conversation_store.models import ReceivedKind, Restored

BEFORE_UPGRADE: Final = "before-v"
"""How a store is called, behind its name, that was upgraded to the schema whose number follows."""

BEFORE_UPGRADE_KEPT_HOURS: Final = 24
"""How long it is there to go back to. It holds also what people have deleted since."""

BEFORE_ENCRYPTION: Final = "before-encryption"
"""How the store that an encrypted copy replaces is called, behind its name, until it is deleted."""

PLAIN_HEADER: Final = b"SQLite format 3\0"
"""How a file begins that is not encrypted (sqlite.org/fileformat.html)."""

RESTORED: Final = "restored"
"""How a message ended that waited when a copy was made which is the store now."""

_ACTS: Final = (
    "SELECT sql FROM sqlite_schema WHERE type IN ('trigger', 'view') OR sql LIKE 'create virtual%'"
)
"""Finds what does more than to hold rows. Somebody's trigger could keep what people delete."""

_OWN_TRIGGERS: Final = frozenset(
    statement.strip()
    for statement in m0016_memory.STATEMENTS
    if statement.strip().startswith("CREATE TRIGGER")
)
"""What the schema itself does with rows, word for word."""

MEGABYTE: Final = 1_000_000


def backup(path: Path, key: str | None, target: Path) -> None:
    """Write a consistent copy under the same key; the bot may run meanwhile. Blocks.

    Raises:
        StoreUnreadable: the key does not fit, or the file is no database.
        StoreFailed: there is no store, or the copy cannot be written.
    """
    partial = beside(target, ".partial")
    with _told("the copy cannot be written"):
        if target.exists():
            raise StoreFailed("the target exists already; it is never overwritten")
        partial.unlink(missing_ok=True)
        with open_shared(path, key, check=lambda _: None) as store:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                _write_copy(store, partial)
                sync(partial)
                partial.rename(target)
                sync(target.absolute().parent)
            finally:
                partial.unlink(missing_ok=True)


def upgrade(path: Path, key: str | None) -> None:
    """Bring a store, which is `locked`, to this version's schema, if it is of an earlier one.

    What is upgraded is a copy, which then takes the store's place: whatever happens, the store is
    as it was or upgraded. The store as it was is kept beside it for a while.

    Raises:
        StoreUnreadable: the key does not fit, or the file was made by a newer version.
        StoreFailed: the disk does not let it, or has no room.
    """
    with _told("the store cannot be opened"):
        finish(path)
        _delete(beside(path, f".{BEFORE_ENCRYPTION}"))  # what a crash has left of it
        if not upgrade_is_due(path, key):
            return
    with _told("the store cannot be brought up to date"), draft(path) as new:
        with open_shared(path, key, check=refuse_newer) as store:
            _require_room(path, store.run(_used_bytes))
            _write_copy(store, new)
        with open_shared(new, key, check=refuse_newer) as store:
            store.transact(migrate)
            store.run(_fold_log)
        name = f"{BEFORE_UPGRADE}{len(MIGRATIONS)}"
        _delete(beside(path, f".{name}"))  # of an upgrade that was taken back
        replace(path, new, aside=name)


def upgrade_is_due(path: Path, key: str | None) -> bool:
    """Whether a store is of an earlier schema than this version's; only looks.

    Raises:
        StoreUnreadable: the key does not fit, or the file was made by a newer version.
        StoreFailed: the disk does not let it.
    """
    with _told("the store cannot be opened"):
        if not path.is_file() or not path.stat().st_size:
            return False
        with open_shared(path, key, check=refuse_newer) as store:
            return EMPTY < store.run(version_of) < len(MIGRATIONS)


def restore(path: Path, key: str | None, source: Path) -> Restored:
    """Put a copy in the place of a store, which is kept beside it. Blocks.

    What still owed an answer when the copy was made was answered since, by the store that is
    replaced: it is closed. A copy of an earlier schema is brought up to date.

    Args:
        path: the store; there may be none.
        key: of the copy, and from now on of the store.
        source: the copy; it is only read.

    Raises:
        StoreLocked: a bot runs on the store.
        StoreUnreadable: the key does not fit, the copy is damaged, none of ours, or too new.
        StoreFailed: there is no copy, or the disk does not let it.
    """
    with locked(path) as real, _told("the copy cannot be restored"):  # a link stays one
        finish(real)
        _require_copy(source, real)
        with draft(real) as new:
            _require_room(real, sum(part.stat().st_size for part in _parts(source)))
            _read_copy(source, new)
            with open_shared(new, key, check=_require_sound) as store:
                messages, sends = store.transact(_close_debts)
                store.run(_fold_log)
            name = _free_name(real)
            aside = beside(real, f".{name}") if real.exists() else None
            replace(real, new, aside=name)
    return Restored(messages, sends, aside)


def encrypt(path: Path, key: str | None, new_key: str) -> None:
    """Put a copy under another key in the place of a store, and delete the old one. Blocks.

    Whatever happens, the store is as it was, or whole under the new key.

    Args:
        path: the store.
        key: what it has now; None for a store that is plain.
        new_key: what it has from now on.

    Raises:
        StoreLocked: a bot runs on the store.
        StoreUnreadable: the key does not fit, or the store is damaged or too new.
        StoreFailed: there is no store, or the disk does not let it.
    """
    with locked(path) as real, _told("the store cannot be encrypted"):
        finish(real)
        with draft(real) as new:
            with open_shared(real, key, check=refuse_newer) as store:
                _require_room(real, 2 * store.run(_used_bytes))  # a journal beside the copy
                _write_copy(store, new)
            with open_shared(new, key, check=_require_sound) as copy:
                copy.run(_fold_log)
                copy.rekey(new_key)
            with open_shared(new, new_key, check=_require_sound) as copy:
                copy.run(_fold_log)
            if is_plain(new):
                raise StoreFailed("the copy is not encrypted")
            replace(real, new, aside=BEFORE_ENCRYPTION)
        _delete(beside(real, f".{BEFORE_ENCRYPTION}"))


def is_there(path: Path) -> bool:
    """Whether there is a store.

    Raises:
        StoreFailed: the disk does not let it.
    """
    with _told("the store cannot be opened"):
        return path.exists()


def is_plain(path: Path) -> bool:
    """Whether there is a store that anybody can read.

    Raises:
        StoreFailed: the disk does not let it.
    """
    with _told("the store cannot be opened"):
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(PLAIN_HEADER)) == PLAIN_HEADER


def key_fits(path: Path, key: str) -> bool:
    """Whether a key opens a store.

    Raises:
        StoreUnreadable: the file was made by a newer version.
        StoreFailed: there is no store, or the disk does not let it.
    """
    try:
        with open_shared(path, key, check=refuse_newer):
            return True
    except WrongKey:
        return False


def forget_before_upgrade(path: Path, now_ms: int) -> int:
    """Delete the stores as they were before upgrades, once that is long ago; return how many.

    Raises:
        StoreFailed: the disk does not let it.
    """
    now, kept_seconds = now_ms / 1_000, BEFORE_UPGRADE_KEPT_HOURS * 3_600
    prefix = f"{path.name}.{BEFORE_UPGRADE}"
    with _told("the copy from before the upgrade cannot be deleted"):
        past = [
            kept
            for kept in path.parent.iterdir()
            if kept.name.startswith(prefix) and abs(now - kept.stat().st_mtime) >= kept_seconds
        ]
        for kept in past:
            kept.unlink()
    return len([kept for kept in past if not kept.name.endswith(LOG)])


def _require_copy(source: Path, path: Path) -> None:
    if not source.is_file():
        raise StoreFailed("there is no such copy")
    if path.exists() and source.samefile(path):
        raise StoreFailed("the copy is the store itself")


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


def _used_bytes(execute: Execute) -> int:
    ((page_bytes,),) = execute("PRAGMA page_size")
    ((pages,),) = execute("PRAGMA page_count")
    ((free_pages,),) = execute("PRAGMA freelist_count")
    return int((pages - free_pages) * page_bytes)


def _write_copy(store: SharedDatabase, target: Path) -> None:
    absolute = str(target.absolute())  # so that no name is taken for a URI
    store.run(lambda execute: list(execute("VACUUM INTO ?", (absolute,))))


def _read_copy(source: Path, target: Path) -> None:
    """Copy a file that may be any database, with what its log holds; it is not opened."""
    for part in _parts(source):
        copy = beside(target, part.name.removeprefix(source.name))
        os.close(os.open(copy, os.O_CREAT | os.O_WRONLY, 0o600))
        shutil.copyfile(part, copy)


def _parts(path: Path) -> list[Path]:
    """Return the files in which a database is that nobody has open."""
    return [part for part in (path, beside(path, LOG)) if part.is_file()]


def _fold_log(execute: Execute) -> None:
    """Let a database be the one file that it is to be moved as."""
    list(execute("PRAGMA journal_mode = DELETE"))


def _require_sound(execute: Execute) -> None:
    refuse_newer(execute)
    tables = {name for (name,) in execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if "inbox" not in tables or {sql for (sql,) in execute(_ACTS)} - _OWN_TRIGGERS:
        raise StoreUnreadable("the file is no store of this program")
    execute("PRAGMA cache_size = -65536")
    if list(execute("PRAGMA integrity_check(1)")) != [("ok",)]:
        raise StoreUnreadable("the copy is damaged")


def _close_debts(execute: Execute) -> tuple[int, int]:
    """Let nothing of a copy be answered, sent or asked again; return how many messages and sends.

    What was to be deleted is deleted.
    """
    migrate(execute)
    waiting = inbox.waiting(execute)
    for accepted in waiting:
        if accepted.message.kind is ReceivedKind.DELETION:
            deletions.perform(execute, accepted)
    owed = [inbox_id for (inbox_id,) in execute("SELECT id FROM inbox WHERE state = 'waiting'")]
    for inbox_id in owed:
        turns.abandon(execute, inbox_id, time.time_ns() // 1_000_000)
        inbox.close(execute, inbox_id, RESTORED)
    unsent = list(execute("DELETE FROM outbox WHERE state = 'waiting' RETURNING id"))
    execute("DELETE FROM exchanges WHERE state = 'waiting'")
    reminders.close_debts(execute, time.time_ns() // 1_000_000)
    execute("UPDATE people SET greeted = 1")
    return len(owed), len(unsent)


def _free_name(path: Path) -> str:
    """Return a name for what is replaced now, to stand behind the store's and a dot."""
    moment = datetime.now(UTC).strftime("replaced-%Y%m%d-%H%M%S")
    names = (f"{moment}-{number}" if number else moment for number in count())
    return next(name for name in names if not _parts(beside(path, f".{name}")))


def _delete(path: Path) -> None:
    for part in _parts(path):
        part.unlink()


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say of what the disk does not let, in which step."""
    try:
        yield
    except StoreRefused as refused:
        raise StoreFailed(f"{what}: {refused}") from refused
    except OSError as error:
        raise StoreFailed(f"{what}: {error.strerror}") from error
