"""Connections to the database, and the meaning of SQLite's errors."""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from conversation_store.words import indexed


class StoreError(Exception):
    """The store cannot do its work."""


class StoreLocked(StoreError):
    """Another process has the store open for writing."""


class StoreUnreadable(StoreError):
    """This version cannot read the file with this key."""


class WrongKey(StoreUnreadable):
    """The key does not fit, or the file is not a database: both look the same."""

    def __init__(self) -> None:
        super().__init__("the key does not fit, or the file is no database")


class StoreFailed(StoreError):
    """The disk or a file does not allow the operation: damaged, missing, or in the way."""


class StoreRefused(StoreFailed):
    """The disk refuses writes now: it is full or read-only, or another process holds the file."""


def is_of_store(error: Exception) -> bool:
    """Return whether the store failed, perhaps in one of several concurrent tasks."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(StoreError) is not None
    return isinstance(error, StoreError)


T = TypeVar("T")

Value = str | int | float | bytes | None

Row = tuple[Any, ...]

_REFUSALS: Final[dict[type[Exception], str]] = {
    apsw.FullError: "the disk is full",
    apsw.ReadOnlyError: "the disk is read-only",
    apsw.IOError: "the disk reports an input/output error",
    apsw.CantOpenError: "the files cannot be opened",
    apsw.BusyError: "another program holds the file",
}
"""Errors that may pass, with words for people."""

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a connection waits for another process, such as a backup."""

SCRUB_WAIT_MS: Final = 200
"""How long emptying the log waits for readers. Every write waits as long."""

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""Size to which the write-ahead log is cut after a long read, such as a backup."""


# SQLite3 Multiple Ciphers would derive the key for every connection. It uses PBKDF2-HMAC-SHA256
# with the first 16 bytes of the file as salt (see cipher sqleet in its documentation). It takes a
# derived key as `raw:` with key and salt in hexadecimal digits.
SALT_BYTES: Final = 16
ROUNDS: Final = 64_007
KEY_BYTES: Final = 32
RAW: Final = "raw:"


class Session:
    """A connection as operations use it. Every statement has ended when a method returns."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, *values: Value) -> list[Row]:
        """Run a statement and return its rows."""
        # All rows at once: apsw never frees a cursor that is still open when another starts.
        return list(self._connection.execute(sql, values))

    def value(self, sql: str, *values: Value) -> Any:
        """Return the first column of the first row; None without rows."""
        return next((row[0] for row in self.run(sql, *values)), None)

    def insert(self, table: str, **columns: Value) -> int:
        """Insert a row and return its id."""
        marks = ", ".join("?" * len(columns))
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._connection.execute(sql, tuple(columns.values()))
        return int(self._connection.last_insert_rowid())


Operation = Callable[[Session], T]


@asynccontextmanager
async def connection(path: Path, key: str | None) -> AsyncIterator[Any]:
    """Open a connection with a thread of its own."""
    connection = await apsw.Connection.as_async(str(path))
    try:
        await connection.async_run(prepare, connection, key)
        yield connection
    finally:
        await connection.aclose()


@contextmanager
def reading_connection(path: Path, key: str | None) -> Iterator[apsw.Connection]:
    """Open a connection that never waits for the file."""
    connection = apsw.Connection(str(path))
    try:
        prepare(connection, key)
        connection.set_busy_timeout(0)
        connection.execute("PRAGMA query_only = ON")
        yield connection
    finally:
        connection.close()


@contextmanager
def in_memory() -> Iterator[Session]:
    """Open a database in memory, for the time of a `with` block. Blocks."""
    connection = apsw.Connection(":memory:")
    try:
        add_indexed(connection)
        connection.execute("PRAGMA temp_store = MEMORY")
        yield Session(connection)
    finally:
        connection.close()


def prepare(connection: Any, key: str | None, check: Operation[None] = lambda _db: None) -> None:
    """Give the key, if any, prove by reading that it fits, and set the pragmas of the store.

    Args:
        check: reads the schema before anything is changed; its errors are passed on.
    """
    with translated():
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        if key is not None:
            connection.pragma("key", key_for(connection, key))
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        check(Session(connection))
        add_indexed(connection)
        for pragma in (
            "auto_vacuum = INCREMENTAL",  # for a new file, or a copy by VACUUM INTO
            "journal_mode = WAL",
            f"journal_size_limit = {MAX_LOG_BYTES}",
            "synchronous = FULL",
            "foreign_keys = ON",
            "recursive_triggers = ON",  # so that REPLACE runs the triggers of what it deletes
            "secure_delete = ON",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()  # otherwise it is only begun


def add_indexed(connection: Any) -> None:
    """Add the function that the triggers of the schema call."""
    connection.create_scalar_function("indexed", indexed, 1, deterministic=True)


def rekey(connection: Any, key: str) -> None:
    """Encrypt a whole file, which has no write-ahead log, under another key."""
    with translated():
        connection.pragma("rekey", key)


def read(connection: Any, operation: Operation[T]) -> T:
    """Run an operation outside any transaction of ours."""
    with translated():
        return operation(Session(connection))


def empty_log(connection: Any) -> bool:
    """Empty the write-ahead log; False if a reader uses it."""
    with translated():
        connection.set_busy_timeout(SCRUB_WAIT_MS)
        try:
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return not busy


def rewrite(connection: Any, max_bytes: int) -> None:
    """Rewrite the database file, unless it is larger than `max_bytes`."""
    with translated():
        ((pages,),) = connection.execute("PRAGMA page_count")
        ((page_bytes,),) = connection.execute("PRAGMA page_size")
        if pages * page_bytes > max_bytes:
            return
        list(connection.execute("VACUUM"))
    empty_log(connection)  # until then, only the log has the new pages


def commit_together(
    connection: Any, operations: Sequence[Operation[Any]]
) -> tuple[list[tuple[Any, Exception | None]], StoreRefused | None]:
    """Run the operations in one transaction; if one fails, each in a transaction of its own.

    Returns:
        the result or the error of each operation that ran, and the reason why the disk refused the
        rest; None if all ran.
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
        db = Session(connection)
        if not connection.get_autocommit():  # the disk refused even to undo the last one
            db.run("ROLLBACK")
        db.run("BEGIN IMMEDIATE")
        try:
            results = [operation(db) for operation in operations]
            db.run("COMMIT")
        except BaseException:
            if not connection.get_autocommit():
                db.run("ROLLBACK")
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
        # SQLite reports an unreadable sector in the same way, and that may pass.
        raise StoreFailed(
            "the database is damaged, or the disk cannot read it: if it stays so, restore a backup"
        ) from error


@contextmanager
def told(what: str) -> Iterator[None]:
    """Add the failed step to errors of the disk."""
    try:
        yield
    except StoreRefused as refused:
        raise StoreFailed(f"{what}: {refused}") from refused
    except OSError as error:
        raise StoreFailed(f"{what}: {error.strerror}") from error


def key_for(connection: Any, passphrase: str) -> str:
    """Return the key for the file of a connection that has not read anything yet."""
    # Read through SQLite's own descriptor: closing another one would release its locks (POSIX).
    is_there, salt = connection.read("main", 0, 0, SALT_BYTES)
    if not is_there or passphrase.startswith(RAW):  # a new file has no salt yet
        return passphrase
    return _derived(passphrase, salt)


@lru_cache(maxsize=4)
def _derived(passphrase: str, salt: bytes) -> str:
    key = hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ROUNDS, KEY_BYTES)
    return f"{RAW}{key.hex()}{salt.hex()}"
