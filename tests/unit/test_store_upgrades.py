"""Upgrades of a store to an invented version 2, and stores that are refused."""

import os
import shutil
import sqlite3
import stat
import time
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from conversation_store.backup import (
    BEFORE_UPGRADE_KEPT_HOURS,
    backup,
    encrypt,
    restore,
    upgrade_is_due,
)
from conversation_store.connections import Session, StoreFailed, StoreUnreadable
from conversation_store.pairings import open_pairing_book
from conversation_store.schema import APPLICATION_ID, MIGRATIONS
from conversation_store.store import ConversationStore, open_store
from tests.e2e.disks import CannotMount, memory_disk
from tests.unit.stores import accept, now_ms, received, rows, store_at, waiting

KEPT_MS = BEFORE_UPGRADE_KEPT_HOURS * 3_600_000
HEADER_BYTES = 100
"""SQLite counts in the header how often the file was opened for writing."""
BEFORE = f"store.db.before-v{len(MIGRATIONS) + 1}"


def add_moods(db: Session) -> None:
    db.run("ALTER TABLE inbox ADD COLUMN mood TEXT")
    db.run("UPDATE inbox SET mood = 'good ' || json_extract(body, '$.text')")


def fail(db: Session) -> None:
    db.run("ALTER TABLE inbox ADD COLUMN mood TEXT")
    db.run("SELECT * FROM no_such_table")


NEXT = (*MIGRATIONS, add_moods)


def next_version_at(
    folder: Path, key: str | None = None
) -> AbstractAsyncContextManager[ConversationStore]:
    return open_store(folder / "store.db", key=key, migrations=NEXT)


async def make(folder: Path, key: str | None = None) -> None:
    """Make a store of this version, with a message that waits."""
    async with open_store(folder / "store.db", key=key) as store:
        await accept(store, received(1, "sesame"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "store.db.lock")


async def test_upgrade_keeps_what_the_store_holds(tmp_path: Path) -> None:
    await make(tmp_path)
    assert upgrade_is_due(tmp_path / "store.db", None, NEXT)
    assert not upgrade_is_due(tmp_path / "store.db", None)
    async with next_version_at(tmp_path) as store:
        assert await waiting(store) == [1]
    assert rows(tmp_path, "SELECT mood FROM inbox") == [("good sesame",)]
    assert rows(tmp_path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]
    with pytest.raises(StoreUnreadable, match="update the bot"):
        async with store_at(tmp_path):
            pass


async def test_upgrade_keeps_the_store_before_for_a_day(tmp_path: Path) -> None:
    await make(tmp_path)
    async with next_version_at(tmp_path) as store:
        async with open_store(tmp_path / BEFORE) as before:
            assert await waiting(before) == [1]
        (tmp_path / f"{BEFORE}.lock").unlink()
        assert abs((tmp_path / BEFORE).stat().st_mtime - time.time()) < 60
        assert await store.upkeep.forget_before_upgrade(now_ms() + KEPT_MS - 60_000) == 0
        assert (tmp_path / BEFORE).exists()
        assert await store.upkeep.forget_before_upgrade(now_ms() + KEPT_MS) == 1
        assert not (tmp_path / BEFORE).exists()


async def test_day_of_the_copy_begins_with_the_upgrade(tmp_path: Path) -> None:
    await make(tmp_path)
    os.utime(tmp_path / "store.db", (1_000_000_000, 1_000_000_000))
    (tmp_path / "store.db").chmod(0o644)
    async with next_version_at(tmp_path) as store:
        assert await store.upkeep.forget_before_upgrade(now_ms()) == 0
        assert mode(tmp_path / BEFORE) == 0o600


async def test_upgrade_that_was_taken_back_is_repeated(tmp_path: Path) -> None:
    await make(tmp_path)
    for _ in range(2):
        async with next_version_at(tmp_path) as store:
            assert await waiting(store) == [1]
        shutil.copy(tmp_path / BEFORE, tmp_path / "store.db")


async def test_copy_is_deleted_even_if_the_clock_was_ahead(tmp_path: Path) -> None:
    await make(tmp_path)
    async with next_version_at(tmp_path) as store:
        in_ten_years = time.time() + 10 * 365 * 86_400
        os.utime(tmp_path / BEFORE, (in_ten_years, in_ten_years))
        assert await store.upkeep.forget_before_upgrade(now_ms()) == 1


async def test_failed_upgrade_changes_nothing(tmp_path: Path) -> None:
    await make(tmp_path)
    was = (tmp_path / "store.db").read_bytes()[HEADER_BYTES:]
    with pytest.raises(apsw.SQLError):
        async with open_store(tmp_path / "store.db", migrations=(*MIGRATIONS, fail)):
            pass
    assert names(tmp_path) == ["store.db"]
    assert (tmp_path / "store.db").read_bytes()[HEADER_BYTES:] == was


async def test_upgrade_is_as_private_and_as_encrypted_as_the_store(tmp_path: Path) -> None:
    await make(tmp_path, key="k")
    async with next_version_at(tmp_path, key="k") as store:
        (accepted,) = (await store.messages.unfinished()).accepted
        assert accepted.message.text == "sesame"
    for one in (tmp_path / "store.db", tmp_path / BEFORE):
        assert b"sesame" not in one.read_bytes()
        assert b"SQLite format" not in one.read_bytes()
        assert mode(one) == 0o600
    with pytest.raises(StoreUnreadable):
        async with open_store(tmp_path / BEFORE, key="another"):
            pass


async def test_upgrade_of_a_linked_store_leaves_the_link(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    await make(disk)
    (tmp_path / "store.db").symlink_to(disk / "store.db")
    async with next_version_at(tmp_path) as store:
        assert await waiting(store) == [1]
        assert BEFORE in names(disk)
        assert await store.upkeep.forget_before_upgrade(now_ms() + KEPT_MS) == 1
    assert (tmp_path / "store.db").is_symlink()


async def test_upgrade_without_room_says_how_much_it_needs(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        with memory_disk(folder) as disk:
            await make(folder)
            disk.fill()
            filler = folder / "filler"
            os.truncate(filler, filler.stat().st_size - 96 * 1024)
            with pytest.raises(StoreFailed, match=r"brought up to date: that needs 0\.\d"):
                async with next_version_at(folder):
                    pass
            assert upgrade_is_due(folder / "store.db", None, NEXT)
            disk.make_room()
            async with next_version_at(folder) as store:
                assert await waiting(store) == [1]
    except CannotMount as reason:
        pytest.skip(str(reason))


async def test_new_store_leaves_no_copy(tmp_path: Path) -> None:
    for _ in range(2):
        async with store_at(tmp_path):
            pass
        assert names(tmp_path) == ["store.db"]


@pytest.mark.parametrize("version", [1, 25])
async def test_store_of_an_unreleased_build_is_refused_in_one_sentence(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE inbox (id INTEGER PRIMARY KEY)")
        old.execute(f"PRAGMA user_version = {version}")
    was = path.read_bytes()
    with pytest.raises(StoreUnreadable, match="from a build before the first release"):
        async with store_at(tmp_path):
            pass
    with (
        pytest.raises(StoreUnreadable, match="from a build before the first release"),
        open_pairing_book(path, None),
    ):
        pass
    for copying in (
        partial(backup, path, None, tmp_path / "copy.db"),
        partial(encrypt, path, None, "key"),
        partial(restore, tmp_path / "other.db", None, path),
    ):
        with pytest.raises(StoreUnreadable, match="from a build before the first release"):
            copying()
    assert path.read_bytes() == was
    assert not (tmp_path / "copy.db").exists()


async def test_store_is_marked_as_one_of_this_program(tmp_path: Path) -> None:
    async with store_at(tmp_path):
        pass
    assert rows(tmp_path, "PRAGMA application_id") == [(APPLICATION_ID,)]
