"""SQLite with one writer whose commits are shared.

Every write is a function over one connection. Writes that arrive while a commit is on its way
to the disk go together into the next one (group commit), so full durability
(`synchronous=FULL`) costs one fsync a batch, not one a write. Reads have a connection of their
own and never wait for a commit (WAL). Most are small and run on the event loop: the way to a thread
and back takes longer than they do.

What the disk refuses (it is full, say) waits and is tried again, in its order, until the disk
takes it: whoever writes waits as long, and nothing is lost.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import apsw

from conversation_store.errors import StoreFailed, StoreLocked, StoreRefused, WrongKey
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

MAX_BATCH: Final = 512
"""Writes in one commit; bounds how long the first of them waits for the last."""

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a connection waits for another process, such as a backup."""

FIRST_RETRY_SECONDS: Final = 0.25
MAX_RETRY_SECONDS: Final = 2.0
"""Between two attempts to write what the disk refused. Shorter than a stop waits for what was read
to be stored: once there is room nothing of that is lost."""

SCRUB_WAIT_MS: Final = 200
"""How long emptying the log waits for whoever reads it; every write waits meanwhile."""

SCRUB_EVERY_SECONDS: Final = 0.25
"""Between two times that `scrub_soon` empties the log, however often it is asked to."""

SCRUB_AGAIN_SECONDS: Final = 5.0
"""After a time when somebody was reading, or the disk refused."""

MAX_LOG_BYTES: Final = 8 * 1024 * 1024
"""What stays of the write-ahead log on disk, however long somebody was reading (a backup)."""


Committed = Callable[[int, float], None]
"""Told after every commit how many writes it took and how many seconds; on the way of every write,
so it is quick, and it raises nothing."""


class Execute(Protocol):
    """What an operation works with."""

    def __call__(self, sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """Run one SQL statement and return its rows.

        They are taken (`list`) before the next statement is run: apsw never frees a cursor that
        is held meanwhile, and every cursor that is not freed slows the connection down.
        """
        ...


Operation = Callable[[Execute], T]


@dataclass(frozen=True, slots=True)
class _Write:
    """An operation that waits for its commit."""

    operation: Operation[Any]
    done: asyncio.Future[Any]
    ordered: bool = False

    def __call__(self, execute: Execute) -> Any:
        """Run it on the writer's thread; whoever wants only the order is told at once."""
        result = self.operation(execute)
        if self.ordered:
            self.done.get_loop().call_soon_threadsafe(self.settle, result, None)
        return result

    def settle(self, result: Any, error: Exception | None) -> None:
        """Tell whoever waits how it went.

        Raises:
            Exception: it failed after it was told that it went well.
        """
        if self.done.done():
            if error is not None and not self.done.cancelled():
                raise error
        elif error is None:
            self.done.set_result(result)
        else:
            self.done.set_exception(error)


class Database:
    """An open database. Made by `open_database`."""

    def __init__(
        self, writer: Any, reader: apsw.Connection, aside: Any, committed: Committed
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._aside = aside
        self._committed = committed
        self._waiting: list[_Write] = []
        self._uncommitted = 0
        self._all_committed = asyncio.Event()
        self._all_committed.set()
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._to_scrub = asyncio.Event()
        self._refusal: str | None = None
        self._refusal_changed = asyncio.Event()

    @property
    def refusal(self) -> str | None:
        """Why the disk takes nothing now, in words; None while it does."""
        return self._refusal

    async def refusal_other_than(self, known: str | None) -> str | None:
        """Wait until `refusal` is another one, and return it."""
        while self._refusal == known:
            await self._refusal_changed.wait()
        return self._refusal

    async def write(self, operation: Operation[T]) -> T:
        """Run an operation in a transaction and return its result once that is on disk.

        While the disk refuses, that takes as long as it does. The operation may run more than
        once (the batch that it was in is undone when the disk or another one fails), so it changes
        nothing but the database. It runs also when whoever waits for it is cancelled: that a
        message was sent must be written however the sender ends.

        Raises:
            StoreRefused: the database was closed before the disk took it; nothing was written.
            StoreFailed: the database is broken; nothing of it was written.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(operation, done))
        self._wake.set()
        return await done

    async def write_ordered(self, operation: Operation[T]) -> T:
        """Run an operation as `write` does, and return its result when it has run.

        It is on disk before any later write is, so nothing that builds on it can outlive it; and
        `read` waits until it is. When the disk fails then, the writer ends with that error.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._uncommitted += 1
        self._all_committed.clear()
        self._waiting.append(_Write(operation, done, ordered=True))
        self._wake.set()
        return await done

    def write_later(self, operation: Operation[None]) -> None:
        """Queue an operation without waiting for the disk; it comes before every later write.

        When it fails, what is built on it fails too, and asyncio reports its own error.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(operation, done))
        self._wake.set()

    async def read(self, operation: Operation[T], *, latest: bool = True) -> T:
        """Run an operation that reads a little, on the event loop, and return its result.

        Args:
            operation: reads.
            latest: what `write_ordered` has written counts as well; else it may be missing.

        Raises:
            StoreFailed: the disk is broken.
        """
        if latest:
            await self._all_committed.wait()
        try:
            return _read(self._reader, operation)
        except StoreRefused:  # another process may hold the file for a moment: wait on a thread
            return await self.read_aside(operation)

    async def read_aside(self, operation: Operation[T]) -> T:
        """Run an operation that may read much, on a thread, and return its result.

        Raises:
            StoreFailed: the disk is broken.
        """
        await self._all_committed.wait()
        result: T = await self._aside.async_run(_read, self._aside, operation)
        return result

    async def scrub(self) -> bool:
        """Empty the write-ahead log, where deleted content lives on; False where it cannot be now.

        In the database file itself deleted content is overwritten (`secure_delete`). What cannot
        be emptied now is by `scrub_soon`.

        Raises:
            StoreFailed: the database is broken.
        """
        try:
            done: bool = await self._writer.async_run(_empty_log, self._writer)
        except StoreRefused:
            done = False
        if not done:
            self._to_scrub.set()
        return done

    def scrub_soon(self) -> None:
        """Have the log emptied of what was committed so far, a moment later, and wait for nothing.

        Many such wishes cost one emptying: it holds up every write for as long as two syncs take.
        """
        self._to_scrub.set()

    async def scrub_when_asked(self) -> None:
        """Be the one who empties the log later, until cancelled.

        Raises:
            StoreFailed: the database is broken.
        """
        while True:
            await self._to_scrub.wait()
            self._to_scrub.clear()
            done = await self.scrub()
            await asyncio.sleep(SCRUB_EVERY_SECONDS if done else SCRUB_AGAIN_SECONDS)

    async def commit_batches(self) -> None:
        """Be the one writer, until `close` was called and nothing waits any more."""
        while self._waiting or not self._closing.is_set():
            await self._wake.wait()
            batch = self._waiting[:MAX_BATCH]
            del self._waiting[:MAX_BATCH]
            if not self._waiting and not self._closing.is_set():
                self._wake.clear()
            if batch:
                await self._commit(batch)

    def close(self) -> None:
        """Let the writer end once it has committed what waits, or the disk refuses it."""
        self._closing.set()
        self._wake.set()

    async def _commit(self, batch: list[_Write]) -> None:
        """Write a batch, however often the disk refuses it meanwhile."""
        delay = FIRST_RETRY_SECONDS
        while batch:
            operations: list[Operation[Any]] = list(batch)
            began = time.monotonic()
            outcomes, refused = await self._writer.async_run(
                _commit_together, self._writer, operations
            )
            if outcomes:
                self._committed(len(outcomes), time.monotonic() - began)
            self._count_committed(batch[: len(outcomes)])
            for write, outcome in zip(batch, outcomes, strict=False):
                write.settle(*outcome)
            del batch[: len(outcomes)]
            self._note(refused)
            if refused is not None and self._closing.is_set():
                for write in batch:
                    if not write.done.done():
                        write.settle(None, refused)
                self._all_committed.set()
                return
            if refused is not None:
                await self._pause(delay)
                delay = min(delay * 2, MAX_RETRY_SECONDS)

    def _count_committed(self, writes: Sequence[_Write]) -> None:
        self._uncommitted -= sum(write.ordered for write in writes)
        if not self._uncommitted:
            self._all_committed.set()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            pass

    def _note(self, refused: StoreRefused | None) -> None:
        """Let everybody know whether the disk takes anything."""
        words = None if refused is None else str(refused)
        if words != self._refusal:
            self._refusal = words
            self._refusal_changed.set()
            self._refusal_changed = asyncio.Event()


@asynccontextmanager
async def open_database(
    path: Path,
    key: str | None,
    *,
    prepare: Operation[Any],
    committed: Committed = lambda _writes, _seconds: None,
) -> AsyncIterator[Database]:
    """Open or create the database file and keep its writer running.

    Args:
        path: the file; where it is missing, it is made readable for the owner alone. It is
            `locked` by the caller.
        key: encrypts the file at rest (SQLite3 Multiple Ciphers, ChaCha20-Poly1305); None: plain.
        prepare: brings the schema up to date, in one transaction before anything else; what
            it raises leaves here as it is.
        committed: see `Committed`.

    Raises:
        WrongKey: the key does not fit, or the file is no database.
        StoreFailed: the disk does not let it.
    """
    _make_private(path)
    async with _connection(path, key) as writer:
        await writer.async_run(_transact, writer, [prepare])
        async with _connection(path, key) as aside:
            await aside.async_run(_execute(aside), "PRAGMA query_only = ON")
            with _reader(path, key) as reader:
                database = Database(writer, reader, aside, committed)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(database.commit_batches())
                    scrubbing = tasks.create_task(database.scrub_when_asked())
                    try:
                        yield database
                    finally:
                        scrubbing.cancel()  # who closes the file last empties its log
                        database.close()


@asynccontextmanager
async def _connection(path: Path, key: str | None) -> AsyncIterator[Any]:
    """Open a connection that works on a thread of its own."""
    connection = await apsw.Connection.as_async(str(path))
    try:
        await connection.async_run(_prepare, connection, key)
        yield connection
    finally:
        await connection.aclose()


@contextmanager
def _reader(path: Path, key: str | None) -> Iterator[apsw.Connection]:
    """Open a connection that reads at once or not at all."""
    connection = apsw.Connection(str(path))
    try:
        _prepare(connection, key)
        connection.set_busy_timeout(0)
        connection.execute("PRAGMA query_only = ON")
        yield connection
    finally:
        connection.close()


class SharedDatabase:
    """A database beside the process that runs on it. Made by `open_shared`; every call blocks."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def transact(self, operation: Operation[T]) -> T:
        """Run an operation in a transaction of its own and return its result.

        Raises:
            StoreFailed: nothing of it was written.
        """
        result: T = _transact(self._connection, [operation])[0]
        return result

    def run(self, operation: Operation[T]) -> T:
        """Run what is no part of a transaction, and return its result.

        Raises:
            StoreFailed: the disk does not let it.
        """
        return _read(self._connection, operation)


@contextmanager
def open_shared(path: Path, key: str | None, *, check: Operation[None]) -> Iterator[SharedDatabase]:
    """Open a database that another process may be using, and may go on using. Blocks.

    Args:
        path: the file; it must be there.
        key: see `open_database`.
        check: looks at the schema before anything is changed; what it raises leaves here as it is.

    Raises:
        WrongKey: the key does not fit, or the file is no database.
        StoreFailed: there is no file, or the disk does not let it.
    """
    try:
        is_there = path.is_file()
    except OSError as error:
        raise StoreFailed(f"the store cannot be opened: {error.strerror}") from error
    if not is_there:
        raise StoreFailed("there is no store yet: start the bot once")
    with _translated():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with _translated():
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            _unlock(connection, key)
            check(_execute(connection))
            _configure(connection)
        yield SharedDatabase(connection)
    finally:
        connection.close()


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Hold the file that says: this store has its writer. A missing folder is made, for the owner.

    It is beside the store itself, whose path without links is yielded; there SQLite's log is, too.

    Raises:
        StoreLocked: another process has the store open for writing.
        StoreFailed: the disk does not let it.
    """
    path = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreFailed(f"the store cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    except BlockingIOError as error:
        raise StoreLocked("another process uses this store") from error
    finally:
        os.close(lock)


def _make_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreFailed(f"the store cannot be opened: {error.strerror}") from error


def _prepare(connection: Any, key: str | None) -> None:
    with _translated():
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        _unlock(connection, key)
        _configure(connection)


def _configure(connection: Any) -> None:
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


def _unlock(connection: Any, key: str | None) -> None:
    """Give the key, if any, and prove that it fits by reading."""
    if key is not None:
        connection.pragma("key", key_for(connection, key))
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _execute(connection: Any) -> Execute:
    def execute(sql: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        rows: Iterator[Row] = connection.execute(sql, values)
        return rows

    return execute


def _read(connection: Any, operation: Operation[T]) -> T:
    with _translated():
        return operation(_execute(connection))


def _empty_log(connection: Any) -> bool:
    with _translated():
        connection.set_busy_timeout(SCRUB_WAIT_MS)
        try:
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return not busy


def _commit_together(
    connection: Any, operations: Sequence[Operation[Any]]
) -> tuple[list[tuple[Any, Exception | None]], StoreRefused | None]:
    """Run the operations in one transaction; if one fails, each in a transaction of its own.

    Returns:
        what became of the first ones, and why the disk took none of the others; None when there
        are no others.
    """
    try:
        return [(result, None) for result in _transact(connection, operations)], None
    except StoreRefused as refused:
        return [], refused
    except Exception as error:
        if len(operations) == 1:
            return [(None, error)], None
    outcomes: list[tuple[Any, Exception | None]] = []
    for operation in operations:
        alone, refused_now = _commit_together(connection, [operation])
        outcomes += alone
        if refused_now is not None:
            return outcomes, refused_now
    return outcomes, None


def _transact(connection: Any, operations: Sequence[Operation[Any]]) -> list[Any]:
    with _translated():
        execute = _execute(connection)
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
def _translated() -> Iterator[None]:
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
