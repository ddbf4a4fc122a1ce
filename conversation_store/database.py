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
from typing import Any, Final, TypeVar

import apsw

from conversation_store import connections
from conversation_store.atomic_replace import LOG, beside
from conversation_store.connections import BUSY_TIMEOUT_MS, MAX_LOG_BYTES, Execute, Operation, Row
from conversation_store.errors import StoreFailed, StoreLocked, StoreRefused
from conversation_store.leftovers import Leftovers

__all__ = [
    "MAX_LOG_BYTES",
    "Database",
    "Execute",
    "Operation",
    "Row",
    "SharedDatabase",
    "locked",
    "open_database",
    "open_shared",
]

T = TypeVar("T")

MAX_BATCH: Final = 512
"""Writes in one commit; bounds how long the first of them waits for the last."""

FIRST_RETRY_SECONDS: Final = 0.25

MAX_RETRY_SECONDS: Final = 2.0
"""Between two attempts to write what the disk refused. Shorter than a stop waits for what was read
to be stored: once there is room nothing of that is lost."""

SCRUB_EVERY_SECONDS: Final = 0.25
"""Between two times that `scrub_soon` empties the log, however often it is asked to."""

SCRUB_AGAIN_SECONDS: Final = 5.0
"""After a time when somebody was reading, or the disk refused."""

Committed = Callable[[int, float], None]
"""Told after every commit how many writes it took and how many seconds; on the way of every write,
so it is quick, and it raises nothing."""


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
        self,
        writer: Any,
        reader: apsw.Connection,
        aside: Any,
        leftovers: Leftovers,
        committed: Committed,
    ) -> None:
        self._writer = writer
        self._leftovers = leftovers
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
            return connections.read(self._reader, operation)
        except StoreRefused:  # another process may hold the file for a moment: wait on a thread
            return await self.read_aside(operation)

    async def read_aside(self, operation: Operation[T]) -> T:
        """Run an operation that may read much, on a thread, and return its result.

        Raises:
            StoreFailed: the disk is broken.
        """
        await self._all_committed.wait()
        result: T = await self._aside.async_run(connections.read, self._aside, operation)
        return result

    async def scrub(self) -> bool:
        """Empty the write-ahead log, where deleted content lives on; False where it cannot be now.

        In the database file itself deleted content is overwritten (`secure_delete`), and
        `Leftovers` sees to its copies. What cannot be emptied now is by `scrub_soon`.

        Raises:
            StoreFailed: the database is broken.
        """
        self._leftovers.may_be_there()
        try:
            done: bool = await self._writer.async_run(connections.empty_log, self._writer)
        except StoreRefused:
            done = False
        if not done:
            self._to_scrub.set()
        return done

    def scrub_soon(self) -> None:
        """Have the log emptied of what was committed so far, a moment later, and wait for nothing.

        Many such wishes cost one emptying: it holds up every write for as long as two syncs take.
        """
        self._leftovers.may_be_there()
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
                connections.commit_together, self._writer, operations
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
        message = None if refused is None else str(refused)
        if message != self._refusal:
            self._refusal = message
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
    was_open = beside(path, LOG).exists()  # whoever closes it deletes that
    async with connections.connection(path, key) as writer:
        await writer.async_run(connections.transact, writer, [prepare])
        leftovers = Leftovers(writer, may_be_there=was_open)
        async with connections.connection(path, key) as aside:
            await aside.async_run(connections.execute_on(aside), "PRAGMA query_only = ON")
            with connections.reading_connection(path, key) as reader:
                database = Database(writer, reader, aside, leftovers, committed)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(database.commit_batches())
                    scrubbing = tasks.create_task(database.scrub_when_asked())
                    removing = tasks.create_task(leftovers.remove_in_time())
                    try:
                        yield database
                    finally:
                        scrubbing.cancel()  # who closes the file last empties its log
                        removing.cancel()
                        database.close()
                await leftovers.remove()


class SharedDatabase:
    """A database beside the process that runs on it. Made by `open_shared`; every call blocks."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def transact(self, operation: Operation[T]) -> T:
        """Run an operation in a transaction of its own and return its result.

        Raises:
            StoreFailed: nothing of it was written.
        """
        result: T = connections.transact(self._connection, [operation])[0]
        return result

    def run(self, operation: Operation[T]) -> T:
        """Run what is no part of a transaction, and return its result.

        Raises:
            StoreFailed: the disk does not let it.
        """
        return connections.read(self._connection, operation)

    def rekey(self, key: str) -> None:
        """Encrypt the whole database, which nobody else has open, under another key.

        Raises:
            StoreFailed: the disk does not let it.
        """
        connections.rekey(self._connection, key)


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
    with connections.translated():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with connections.translated():
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            connections.unlock(connection, key)
            check(connections.execute_on(connection))
            connections.configure(connection)
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
