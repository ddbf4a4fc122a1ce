"""A full disk: writes wait until there is room."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import apsw
import pytest

from conversation_store.connections import Session, StoreFailed, StoreRefused
from conversation_store.database import open_database

LIMIT_BYTES = 4096


@contextmanager
def refusing_disk() -> Iterator[None]:
    """Keep files of this process from growing beyond a page, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def prepare(db: Session) -> None:
    db.run("CREATE TABLE numbers (number INTEGER UNIQUE, padding TEXT)")


def put(db: Session, number: int) -> None:
    db.run("INSERT INTO numbers VALUES (?, ?)", number, "x" * LIMIT_BYTES)


def numbers(db: Session) -> list[int]:
    return [number for (number,) in db.run("SELECT number FROM numbers ORDER BY rowid")]


async def test_refused_writes_happen_in_order_once_the_disk_accepts_them(tmp_path: Path) -> None:
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        await database.write(lambda db: put(db, 0))
        async with asyncio.TaskGroup() as tasks:
            with refusing_disk():
                assert not await database.scrub()
                for number in range(1, 40):
                    tasks.create_task(database.write(partial(put, number=number)))
                assert await database.refusal_other_than(None) is not None
                assert await database.read(numbers) == [0]
            assert await database.refusal_other_than(database.refusal) is None
        assert await database.read(numbers) == list(range(40))
        assert await database.scrub()


async def test_another_program_that_holds_the_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conversation_store.connections.BUSY_TIMEOUT_MS", 10)
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        with closing(apsw.Connection(str(tmp_path / "store.db"))) as other:
            other.execute("BEGIN IMMEDIATE")
            write = asyncio.ensure_future(database.write(partial(put, number=1)))
            assert await database.refusal_other_than(None) == "another program holds the file"
            other.execute("ROLLBACK")
        await write
        assert database.refusal is None


@pytest.mark.parametrize(
    ("hindrance", "words"),
    [
        ("PRAGMA query_only = ON", "the disk is read-only"),
        ("ATTACH '/nowhere/store.db' AS elsewhere", "the files cannot be opened"),
    ],
)
async def test_passing_obstacle_is_named_and_awaited(
    hindrance: str, words: str, tmp_path: Path
) -> None:
    attempts = 0

    def put_at_the_second_attempt(db: Session) -> None:
        nonlocal attempts
        attempts += 1
        try:
            if attempts == 1:
                db.run(hindrance)
            put(db, 1)
        finally:
            db.run("PRAGMA query_only = OFF")

    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        write = asyncio.ensure_future(database.write(put_at_the_second_attempt))
        assert await database.refusal_other_than(None) == words
        await write
        assert await database.read(numbers) == [1]


async def test_bug_among_refused_writes_affects_no_other_write(tmp_path: Path) -> None:
    commits: list[tuple[int, float]] = []

    def committed(writes: int, seconds: float) -> None:
        commits.append((writes, seconds))

    path = tmp_path / "store.db"
    async with open_database(path, None, prepare=prepare, committed=committed) as database:
        await database.write(lambda db: put(db, 0))
        with refusing_disk():
            writes = [
                asyncio.ensure_future(database.write(partial(put, number=number)))
                for number in (1, 0, 2)  # the second one breaks a constraint
            ]
            await database.refusal_other_than(None)
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "NoneType",
            "ConstraintError",
            "NoneType",
        ]
        assert await database.read(numbers) == [0, 1, 2]
    assert sum(writes for writes, _ in commits) == 4
    assert all(writes > 0 and seconds > 0 for writes, seconds in commits)


async def test_write_refused_to_the_end_raises_for_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The next attempt never comes within this test.
    monkeypatch.setattr("conversation_store.database.FIRST_RETRY_SECONDS", 3_600.0)
    async with open_database(tmp_path / "store.db", None, prepare=prepare) as database:
        await database.write(lambda db: put(db, 0))
        with refusing_disk():
            write = asyncio.ensure_future(database.write(lambda db: put(db, 1)))
            await database.refusal_other_than(None)
            database.close()
            with pytest.raises(StoreRefused):
                await write
    async with open_database(tmp_path / "store.db", None, prepare=lambda _: None) as again:
        assert await again.read(numbers) == [0]


async def test_unreadable_page_is_no_reason_to_restore_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with open_database(path, None, prepare=prepare) as database:
        await database.write(lambda db: put(db, 1))
    with path.open("r+b") as file:
        file.seek(LIMIT_BYTES)  # after the first page, which has the schema
        file.write(b"\xff" * (path.stat().st_size - LIMIT_BYTES))
    async with open_database(path, None, prepare=lambda _: None) as database:
        with pytest.raises(StoreFailed, match="if it stays so, restore a backup"):
            await database.read(numbers)
