"""Writes whose result is given before the disk has it: what counts is their order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from conversation_store.connections import Session, StoreFailed
from conversation_store.database import Database, open_database

BOUND_SECONDS = 5.0


@asynccontextmanager
async def database_in(folder: Path) -> AsyncIterator[Database]:
    def prepare(db: Session) -> None:
        db.run("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, word TEXT UNIQUE)")

    async with (
        asyncio.timeout(BOUND_SECONDS),
        open_database(folder / "rows.db", None, prepare=prepare) as database,
    ):
        yield database


def insert(db: Session, word: str) -> int:
    number = db.value("INSERT INTO rows (word) VALUES (?) RETURNING id", word)
    return int(number)


def words(db: Session) -> list[str]:
    return [word for (word,) in db.run("SELECT word FROM rows ORDER BY id")]


async def test_the_result_is_there_while_the_commit_is_held_up_and_reads_wait_for_it(
    tmp_path: Path,
) -> None:
    go_on = Event()

    def hold(_: Session) -> None:
        assert go_on.wait(BOUND_SECONDS)

    async with database_in(tmp_path) as database, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(database.write_ordered(lambda db: insert(db, "a")))
        held = tasks.create_task(database.write(hold))
        assert await first == 1
        assert not held.done()
        assert await database.read(words, latest=False) == []
        latest = tasks.create_task(database.read(words))
        aside = tasks.create_task(database.read_aside(words))
        await asyncio.sleep(0)
        assert not latest.done()
        go_on.set()
        assert await latest == await aside == ["a"]


async def test_a_later_write_is_never_on_disk_without_the_ordered_one(tmp_path: Path) -> None:
    async with database_in(tmp_path) as database:
        for number in range(50):
            assert await database.write_ordered(partial(insert, word=f"o{number}")) > 0
            await database.write(partial(insert, word=f"w{number}"))
            found = await database.read(words, latest=False)
            assert found[-2:] == [f"o{number}", f"w{number}"]


async def test_a_failing_neighbour_changes_neither_its_result_nor_its_row(tmp_path: Path) -> None:
    async with database_in(tmp_path) as database:
        await database.write(lambda db: insert(db, "taken"))
        results = await asyncio.gather(
            database.write_ordered(lambda db: insert(db, "a")),
            database.write(lambda db: insert(db, "taken")),
            database.write_ordered(lambda db: insert(db, "b")),
            return_exceptions=True,
        )
        assert isinstance(results[1], Exception)
        assert await database.read(words) == ["taken", "a", "b"]
        assert [results[0], results[2]] == [2, 3]


async def test_error_of_an_operation_reaches_its_caller(tmp_path: Path) -> None:
    async with database_in(tmp_path) as database:
        await database.write_ordered(lambda db: insert(db, "a"))
        with pytest.raises(Exception, match="UNIQUE"):
            await database.write_ordered(lambda db: insert(db, "a"))
        assert await database.read(words) == ["a"]


async def test_a_failure_after_its_result_was_given_ends_the_writer(tmp_path: Path) -> None:
    runs = 0

    def fails_when_run_again(db: Session) -> int:
        nonlocal runs
        runs += 1
        if runs > 1:
            raise StoreFailed("the database is damaged")
        return insert(db, "a")

    def fails(_: Session) -> None:
        raise ValueError

    async def use_it_until_it_ends() -> None:
        async with database_in(tmp_path) as database:
            given = await asyncio.gather(
                database.write_ordered(fails_when_run_again),
                database.write(fails),
                return_exceptions=True,
            )
            assert given[0] == 1
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        await use_it_until_it_ends()
    assert ended.group_contains(StoreFailed)
