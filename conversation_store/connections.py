"""Connections to the database: how they are opened, and what SQLite's errors mean."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import apsw

from conversation_store.errors import StoreFailed, StoreRefused, WrongKey
from conversation_store.keys import key_for

T = TypeVar("T")

Value = str | int | float | bytes | None

Row = tuple[Any, ...]

_REFUSALS: Final[dict[type[Exception], str]] = {
    apsw.FullError: "the disk is full",
    apsw.ReadOnlyError: "the disk is read-only",
    apsw.IOError: "the disk does not take or give what is stored",
    apsw.CantOpenError: "the files cannot be opened",
    apsw.BusyError: "another program holds the file",
}
"""What may pass, by SQLite's words for it."""

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a connection waits for another process, such as a backup."""

SCRUB_WAIT_MS: Final = 200
"""How long emptying the log waits for whoever reads it; every write waits meanwhile."""

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""What stays of the write-ahead log on disk, however long somebody was reading (a backup)."""


class Execute(Protocol):
    """What an operation works with."""

    def __call__(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """Run one SQL statement and return its rows.

        They are taken (`list`) before the next statement is run: apsw never frees a cursor that
        is held meanwhile, and every cursor that is not freed slows the connection down.
        """
        ...


Operation = Callable[[Execute], T]


@asynccontextmanager
async def connection(path: Path, key: str | None) -> AsyncIterator[Any]:
    """Open a connection that works on a thread of its own."""
    connection = await apsw.Connection.as_async(str(path))
    try:
        await connection.async_run(_prepare, connection, key)
        yield connection
    finally:
        await connection.aclose()


@contextmanager
def reading_connection(path: Path, key: str | None) -> Iterator[apsw.Connection]:
    """Open a connection that reads at once or not at all."""
    connection = apsw.Connection(str(path))
    try:
        _prepare(connection, key)
        connection.set_busy_timeout(0)
        connection.execute("PRAGMA query_only = ON")
        yield connection
    finally:
        connection.close()


@contextmanager
def in_memory() -> Iterator[Execute]:
    """Open a database that is in memory alone, and gone with the block. Blocks."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute("PRAGMA temp_store = MEMORY")
        yield execute_on(connection)
    finally:
        connection.close()


def _prepare(connection: Any, key: str | None) -> None:
    with translated():
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        unlock(connection, key)
        configure(connection)


def configure(connection: Any) -> None:
    """Let SQLite work as this store needs it."""
    for pragma in (
        "auto_vacuum = INCREMENTAL",  # of a file that is made now, or of a copy by VACUUM INTO
        "journal_mode = WAL",
        f"journal_size_limit = {MAX_LOG_BYTES}",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}")


def unlock(connection: Any, key: str | None) -> None:
    """Give the key, if any, and prove that it fits by reading."""
    if key is not None:
        connection.pragma("key", key_for(connection, key))
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def rekey(connection: Any, key: str) -> None:
    """Encrypt a whole file, which has no write-ahead log, under another key."""
    with translated():
        connection.pragma("rekey", key)


def execute_on(connection: Any) -> Execute:
    """Return what runs statements over a connection."""

    def execute(sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        rows: Iterator[Row] = connection.execute(sql, values)
        return rows

    return execute


def read(connection: Any, operation: Operation[T]) -> T:
    """Run an operation outside any transaction of ours."""
    with translated():
        return operation(execute_on(connection))


def empty_log(connection: Any) -> bool:
    """Empty the write-ahead log; False where somebody reads from it."""
    with translated():
        connection.set_busy_timeout(SCRUB_WAIT_MS)
        try:
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return not busy


def rewrite(connection: Any, max_bytes: int) -> None:
    """Write the whole database file anew; nothing is done where it is larger than `max_bytes`."""
    with translated():
        ((pages,),) = connection.execute("PRAGMA page_count")
        ((page_bytes,),) = connection.execute("PRAGMA page_size")
        if pages * page_bytes > max_bytes:
            return
        list(connection.execute("VACUUM"))
    empty_log(connection)  # until then, the new pages are only there


def commit_together(
    connection: Any, operations: Sequence[Operation[Any]]
) -> tuple[list[tuple[Any, Exception | None]], StoreRefused | None]:
    """Run the operations in one transaction; if one fails, each in a transaction of its own.

    Returns:
        what became of the first ones, and why the disk took none of the others; None when there
        are no others.
    """
    try:
        return [(result, None) for result in transact(connection, operations)], None
    except StoreRefused as refused:
        return [], refused
    except Exception as error:
        if len(operations) == 1:
            return [(None, error)], None
    outcomes: list[tuple[Any, Exception | None]] = []
    for operation in operations:
        alone, refused_now = commit_together(connection, [operation])
        outcomes += alone
        if refused_now is not None:
            return outcomes, refused_now
    return outcomes, None


def transact(connection: Any, operations: Sequence[Operation[Any]]) -> list[Any]:
    """Run operations in one transaction and return their results; if one fails, none has run."""
    with translated():
        execute = execute_on(connection)
        if not connection.get_autocommit():  # the disk refused even to undo the last one
            execute("ROLLBACK")
        execute("BEGIN IMMEDIATE")
        try:
            results = [operation(execute) for operation in operations]
            execute("COMMIT")
        except BaseException:
            if not connection.get_autocommit():
                execute("ROLLBACK")
            raise
        return results


@contextmanager
def translated() -> Iterator[None]:
    """Turn SQLite's errors into the store's; a broken constraint is a bug and stays itself."""
    try:
        yield
    except apsw.NotADBError as error:
        raise WrongKey from error
    except apsw.ConstraintError:
        raise
    except tuple(_REFUSALS) as error:
        raise StoreRefused(_REFUSALS[type(error)]) from error
    except apsw.CorruptError as error:
        # SQLite says the same of a sector that cannot be read, which may be so for a moment only.
        raise StoreFailed(
            "the database is damaged, or the disk cannot read it: if it stays so, restore a backup"
        ) from error
