"""Traces of words in a store, while the bot runs or after it."""

import asyncio

import apsw

from tests.e2e.running_bot import World
from tests.unit.stores import rows

LOOK_EVERY_SECONDS = 0.01


def files_of(here: World) -> bytes:
    """Return the bytes of all the store's files."""
    return b"".join(path.read_bytes() for path in sorted(here.folder.glob("store.db*")))


def rows_with(here: World, words: str) -> int:
    """Return how many rows of all tables say these words."""
    database = apsw.Connection(str(here.folder / "store.db"))
    try:
        listed = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        found = [
            str(row) for (table,) in listed for row in database.execute(f"SELECT * FROM {table}")
        ]
    finally:
        database.close()
    return sum(words in row for row in found)


async def there(here: World, words: str) -> None:
    """Wait until a row says these words; the test's own time is the bound."""
    while not rows_with(here, words):  # noqa: ASYNC110 - another process's file has no event
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def there_is(here: World, sql: str) -> None:
    """Wait until a query of the store has a row; the test's own time is the bound."""
    while not rows(here.folder, sql):  # noqa: ASYNC110 - as above
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def gone(here: World, words: str) -> None:
    """Wait until no row says these words; the test's own time is the bound."""
    while rows_with(here, words):  # noqa: ASYNC110 - as above
        await asyncio.sleep(LOOK_EVERY_SECONDS)


async def gone_from_files(here: World, words: str) -> None:
    """Wait until no byte of the store's files says these words, which is a moment after the rows.

    The test's own time is the bound.
    """
    while words.encode() in files_of(here):  # noqa: ASYNC110 - as above
        await asyncio.sleep(LOOK_EVERY_SECONDS)


def let_all_timers_run_out(here: World) -> None:
    """Set the timers of waiting rows to a time long ago."""
    database = apsw.Connection(str(here.folder / "store.db"))
    try:
        database.execute("UPDATE inbox SET expires_at = 1 WHERE expires_at IS NOT NULL")
    finally:
        database.close()
