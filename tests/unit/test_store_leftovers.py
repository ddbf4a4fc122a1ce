"""Rows that SQLite has moved leave no copy behind in the page that they were in."""

import asyncio
import shutil
from functools import partial
from pathlib import Path
from random import Random

import pytest

from conversation_store import connections
from conversation_store.connections import Row, Session, StoreRefused
from conversation_store.database import Database, open_database

ROWS = 2_000
MOMENT_SECONDS = 5.0

CHANCE = Random(3)
LENGTHS = [CHANCE.randint(20, 200) for _ in range(ROWS)]
DELETED_FIRST = [number for number in range(ROWS) if CHANCE.random() < 0.8]
"""So many that SQLite moves the others to fewer pages."""

DELETED_THEN = [
    number for number in range(ROWS) if number not in DELETED_FIRST and CHANCE.random() < 0.5
]


def word(number: int) -> str:
    return f"word{number:05d}."


def prepare(db: Session) -> None:
    db.run("CREATE TABLE IF NOT EXISTS said (id INTEGER PRIMARY KEY, words TEXT)")


def fill(db: Session) -> None:
    for number in range(ROWS):
        db.run("INSERT INTO said VALUES (?, ?)", number, word(number) + "x" * LENGTHS[number])


def delete(db: Session) -> None:
    for number in (*DELETED_FIRST, *DELETED_THEN):
        db.run("DELETE FROM said WHERE id = ?", number)


def say(db: Session, number: int) -> None:
    db.run("INSERT INTO said VALUES (?, ?)", number, word(number))


def everything(db: Session) -> list[Row]:
    return db.run("SELECT id, words FROM said")


def left_in(folder: Path) -> list[int]:
    """Return the numbers of deleted rows that some file still has words of."""
    files = b"".join(path.read_bytes() for path in folder.iterdir())
    deleted = (*DELETED_FIRST, *DELETED_THEN)
    return [number for number in deleted if word(number).encode() in files]


async def nothing_is_left_in(folder: Path) -> None:
    async with asyncio.timeout(MOMENT_SECONDS):
        while left_in(folder):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


def copy_files(folder: Path, target: Path) -> None:
    for path in folder.glob("store.db*"):
        shutil.copy(path, target)


async def write_and_delete(database: Database) -> None:
    await database.write(fill)
    await database.write(delete)


async def test_rows_that_sqlite_moved_are_gone_from_the_file_a_while_after_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversation_store.database.FIRST_SECONDS", 0.1)
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        await write_and_delete(database)
        assert await database.scrub()
        assert left_in(tmp_path)  # so SQLite did move some
        await nothing_is_left_in(tmp_path)


async def test_leftovers_of_a_killed_process_go_with_the_next_one(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        await write_and_delete(database)
        assert await database.scrub()
        await database.write(partial(say, number=ROWS))
        copy_files(tmp_path, killed)
    assert left_in(killed)
    async with open_database(killed / "store.db", None, prepare=prepare):
        pass
    assert not left_in(killed)


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_store_is_rewritten_when_it_is_closed_unless_it_is_large(
    tmp_path: Path, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr("conversation_store.database.MAX_BYTES", 10_000)
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        await write_and_delete(database)
        database.scrub_soon()
    assert bool(left_in(tmp_path)) == is_large


async def test_rewrite_without_room_on_the_disk_happens_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversation_store.database.FIRST_SECONDS", 0.05)
    monkeypatch.setattr("conversation_store.database.MAX_SHARE", 1.0)
    rewrite = connections.rewrite
    refused: list[str] = []

    def refuse_once(connection: object, max_bytes: int) -> None:
        if not refused:
            refused.append("once")
            raise StoreRefused("the disk is full")
        rewrite(connection, max_bytes)

    monkeypatch.setattr(connections, "rewrite", refuse_once)
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        await write_and_delete(database)
        assert await database.scrub()
        await nothing_is_left_in(tmp_path)
    assert refused


async def test_kept_rows_stay_usable_during_a_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversation_store.database.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("conversation_store.database.MAX_SHARE", 1.0)
    path = tmp_path / "store.db"
    async with open_database(path, "a key", prepare=prepare) as database:
        for number in range(100):
            await database.write(partial(say, number=number))
            database.scrub_soon()
            assert len(await database.read(everything)) == number + 1
    async with open_database(path, "a key", prepare=prepare) as database:
        assert dict(await database.read(everything)) == {n: word(n) for n in range(100)}
