"""SQLite with one writer and group commit.

Every write is a function over one connection. Writes that arrive during a commit share the next
one, so full durability (`synchronous=FULL`) costs one fsync per batch, not per write. Reads have a
connection of their own and never wait for a commit (WAL). Most reads are small and run on the event
loop: a thread would take longer.

If the disk refuses writes (because it is full, for example), they are repeated in order until it
accepts them. Callers wait as long, and nothing is lost.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import apsw

from conversation_store import connections
from conversation_store.atomic_replace import LOG, beside
from conversation_store.connections import (
    Operation,
    Session,
    StoreFailed,
    StoreLocked,
    StoreRefused,
)

T = TypeVar("T")

MAX_BATCH: Final = 512
"""Writes in one commit. Bounds the time for which the first waits for the last."""

FIRST_RETRY_SECONDS: Final = 0.25

MAX_RETRY_SECONDS: Final = 2.0
"""Between two attempts after a refusal. Shorter than the time for which a stop waits, so that
incoming messages are still stored once the disk has room."""

SCRUB_EVERY_SECONDS: Final = 0.25
"""Minimum time between two times that `scrub_soon` empties the log."""

SCRUB_AGAIN_SECONDS: Final = 5.0
"""Time until the next attempt if a reader used the log, or the disk refused."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger files are not rewritten: that would take too much memory and time."""

FIRST_SECONDS: Final = 10.0
"""Minimum time between a deletion and the rewrite."""

MAX_SHARE: Final = 0.01
"""Share of time that rewrites may take."""

Committed = Callable[[int, float], None]
"""Called after every commit with the number of writes and the seconds. Every write waits for it, so
it must be quick and must not raise."""


class Database:
    """An open database. Made by `open_database`."""

    def __init__(
        self, writer: Any, reader: apsw.Connection, aside: Any, committed: Committed
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._aside = aside
        self._committed = committed
        self._waiting: list[tuple[Operation[Any], asyncio.Future[Any]]] = []
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._to_scrub = asyncio.Event()
        self._to_rewrite = asyncio.Event()
        self.refusal: str | None = None  # why the disk refuses writes now, in words
        self._refusal_changed = asyncio.Event()

    async def refusal_other_than(self, known: str | None) -> str | None:
        """Wait until `refusal` is no longer `known`, and return it."""
        while self.refusal == known:
            await self._refusal_changed.wait()
        return self.refusal

    async def write(self, operation: Operation[T]) -> T:
        """Run an operation in a transaction and return its result once it is on disk.

        It may run more than once (a batch is undone if the disk or another operation fails), so it
        must change nothing but the database. It also runs if the caller is cancelled: the note
        that a message was sent must reach the disk.

        Raises:
            StoreRefused: the database was closed while the disk refused; nothing was written.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((operation, done))
        self._wake.set()
        return await done

    async def write_and_scrub(self, operation: Operation[T]) -> T:
        """Run an operation as `write` does, and empty the log before it returns."""
        result = await self.write(operation)
        await self.scrub()
        return result

    async def write_and_scrub_soon(self, operation: Operation[T]) -> T:
        """Run an operation as `write` does, and empty the log a moment later."""
        result = await self.write(operation)
        self.scrub_soon()
        return result

    def write_later(self, operation: Operation[None], within_seconds: float = 0.0) -> None:
        """Queue an operation before every later write, without waiting for the disk.

        If it fails, asyncio reports the error.

        Args:
            within_seconds: how long it may wait for another write, to share a commit.
        """
        loop = asyncio.get_running_loop()
        self._waiting.append((operation, loop.create_future()))
        if within_seconds:
            loop.call_later(within_seconds, self._wake.set)
        else:
            self._wake.set()

    async def read(self, operation: Operation[T]) -> T:
        """Run an operation that reads a little, on the event loop, and return its result."""
        try:
            return connections.read(self._reader, operation)
        except StoreRefused:  # another process may hold the file for a moment: wait on a thread
            return await self.read_aside(operation)

    async def read_aside(self, operation: Operation[T]) -> T:
        """Run an operation that may read much, on a thread, and return its result."""
        result: T = await self._aside.async_run(connections.read, self._aside, operation)
        return result

    async def scrub(self) -> bool:
        """Empty the write-ahead log of deleted content; False if it has to be repeated later.

        In the database file, SQLite overwrites deleted content (`secure_delete`), and `rewrite`
        removes copies of it.
        """
        self._to_rewrite.set()
        try:
            done: bool = await self._writer.async_run(connections.empty_log, self._writer)
        except StoreRefused:
            done = False
        if not done:
            self._to_scrub.set()
        return done

    def scrub_soon(self) -> None:
        """Empty the log a moment later, without waiting.

        Many requests share one emptying, because it delays every write by two syncs.
        """
        self._to_rewrite.set()
        self._to_scrub.set()

    async def scrub_when_asked(self) -> None:
        """Empty the log on request, until cancelled."""
        while True:
            await self._to_scrub.wait()
            self._to_scrub.clear()
            done = await self.scrub()
            await asyncio.sleep(SCRUB_EVERY_SECONDS if done else SCRUB_AGAIN_SECONDS)

    async def rewrite_after_deletions(self) -> None:
        """Rewrite the file a while after deletions, until cancelled."""
        pause = FIRST_SECONDS
        while True:
            await self._to_rewrite.wait()
            await asyncio.sleep(pause)
            began = time.monotonic()
            await self.rewrite()
            pause = max(FIRST_SECONDS, (time.monotonic() - began) / MAX_SHARE)

    async def rewrite(self) -> None:
        """Rewrite the file if anything was deleted. If the disk refuses, it stays due.

        SQLite also moves rows between pages, and the old page keeps a copy in its unused part.
        Nothing overwrites that copy when the row is deleted. A rewritten file (`VACUUM`) has no
        such copies. A rewrite takes about 10 ms and 1 MB of memory per megabyte and delays every
        write. So one rewrite serves all deletions of a while, and another one runs at the end.
        """
        if not self._to_rewrite.is_set():
            return
        self._to_rewrite.clear()
        done = False
        try:
            with suppress(StoreRefused):
                await self._writer.async_run(connections.rewrite, self._writer, MAX_BYTES)
                done = True
        finally:
            if not done:
                self._to_rewrite.set()

    async def commit_batches(self) -> None:
        """Commit batches of writes until `close` was called and all writes are done."""
        while self._waiting or not self._closing.is_set():
            await self._wake.wait()
            batch = self._waiting[:MAX_BATCH]
            del self._waiting[:MAX_BATCH]
            if not self._waiting and not self._closing.is_set():
                self._wake.clear()
            if batch:
                await self._commit(batch)

    def close(self) -> None:
        """End the writer once it has committed all writes, or the disk refuses them."""
        self._closing.set()
        self._wake.set()

    async def _commit(self, batch: list[tuple[Operation[Any], asyncio.Future[Any]]]) -> None:
        """Write a batch, and repeat it as long as the disk refuses."""
        delay = FIRST_RETRY_SECONDS
        while batch:
            began = time.monotonic()
            outcomes, refused = await self._writer.async_run(
                connections.commit_together, self._writer, [operation for operation, _ in batch]
            )
            if outcomes:
                self._committed(len(outcomes), time.monotonic() - began)
            if refused is not None and self._closing.is_set():
                outcomes += [(None, refused)] * (len(batch) - len(outcomes))
            for (_, done), (result, error) in zip(batch, outcomes, strict=False):
                if done.done():
                    pass  # its caller was cancelled
                elif error is None:
                    done.set_result(result)
                else:
                    done.set_exception(error)
            del batch[: len(outcomes)]
            self._note(refused)
            if batch:
                with suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await self._closing.wait()
                delay = min(delay * 2, MAX_RETRY_SECONDS)

    def _note(self, refused: StoreRefused | None) -> None:
        """Publish whether the disk accepts writes."""
        message = None if refused is None else str(refused)
        if message != self.refusal:
            self.refusal = message
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
        path: the file, `locked` by the caller. If it is missing, it is created for the owner only.
        key: encrypts the file at rest (SQLite3 Multiple Ciphers, ChaCha20-Poly1305); None: plain.
        prepare: brings the schema up to date in the first transaction; its errors are passed on.
        committed: see `Committed`.

    Raises:
        WrongKey: the key does not fit, or the file is not a database.
    """
    _make_private(path)
    was_open = beside(path, LOG).exists()  # a clean close deletes it
    async with connections.connection(path, key) as writer:
        await writer.async_run(connections.transact, writer, [prepare])
        async with connections.connection(path, key) as aside:
            await aside.async_run(Session(aside).run, "PRAGMA query_only = ON")
            with connections.reading_connection(path, key) as reader:
                database = Database(writer, reader, aside, committed)
                if was_open:
                    database.scrub_soon()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(database.commit_batches())
                    scrubbing = tasks.create_task(database.scrub_when_asked())
                    rewriting = tasks.create_task(database.rewrite_after_deletions())
                    try:
                        yield database
                    finally:
                        scrubbing.cancel()  # the last close of the file empties its log
                        rewriting.cancel()
                        database.close()
                await database.rewrite()


@contextmanager
def open_shared(path: Path, key: str | None, *, check: Operation[None]) -> Iterator[Any]:
    """Open a connection to a database that another process may use at the same time. Blocks.

    Args:
        path: an existing file.
        key: see `open_database`.
        check: reads the schema before anything is changed; its errors are passed on.

    Raises:
        WrongKey: the key does not fit, or the file is not a database.
        StoreFailed: the file is missing, or the disk refuses.
    """
    with connections.told("the store cannot be opened"):
        is_there = path.is_file()
    if not is_there:
        raise StoreFailed("there is no store yet: start the bot once")
    with connections.translated():
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connections.prepare(connection, key, check)
        yield connection
    finally:
        connection.close()


@contextmanager
def locked(path: Path) -> Iterator[Path]:
    """Hold the lock file of the store's one writer, and yield the store's path without links.

    The lock and SQLite's log are next to the real file. A missing folder is created for the owner.

    Raises:
        StoreLocked: another process has the store open for writing.
    """
    path = Path(os.path.realpath(path))
    with connections.told("the store cannot be opened"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path
    except BlockingIOError as error:
        raise StoreLocked("another process uses this store") from error
    finally:
        os.close(lock)


def _make_private(path: Path) -> None:
    with connections.told("the store cannot be opened"):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


P = ParamSpec("P")
A = TypeVar("A", bound="Aggregate")

Body = Callable[Concatenate[A, Session, P], T]
Method = Callable[Concatenate[A, P], Coroutine[Any, Any, T]]


class FewChats:
    """Chats that may have rows in a table that few chats use.

    After a commit, a reader has to read each page again, so a search in an empty table takes as
    long as one that finds something.
    """

    def __init__(self, table: str) -> None:
        self._sql = f"SELECT DISTINCT chat FROM {table}"
        self._chats: set[str] = set()
        self._is_loaded = False

    def add(self, chat: str) -> None:
        """Add a chat, before its row is committed."""
        self._chats.add(chat)

    def may_have(self, db: Session, chat: str) -> bool:
        """Return whether a chat may have rows."""
        if not self._is_loaded:
            self._chats.update(chat for (chat,) in db.run(self._sql))
            self._is_loaded = True
        return chat in self._chats


@dataclass(slots=True)
class StoreContext:
    """The database of an open store, and settings of all its parts.

    Attributes:
        retention_days: 0 keeps nothing of a turn that has ended.
    """

    database: Database
    path: Path
    clock: Callable[[], float]
    retention_days: int
    with_images: FewChats = field(default_factory=lambda: FewChats("images"), init=False)
    with_reactions: FewChats = field(default_factory=lambda: FewChats("reactions"), init=False)
    with_summaries: FewChats = field(default_factory=lambda: FewChats("summaries"), init=False)

    def scrub_if_gone(self, *, expired: bool) -> None:
        """Empty the log soon if rows lost words that must not be found again."""
        if expired or self.retention_days == 0:
            self.database.scrub_soon()


class Aggregate:
    """A part of an open store: the rows of one kind of thing."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._database = context.database

    def _now_ms(self) -> int:
        return int(self._context.clock() * 1_000)


def _run_by(
    start: Callable[[Database, Callable[[Session], Any]], Coroutine[Any, Any, Any]],
) -> Callable[[Body[A, P, T]], Method[A, P, T]]:
    def decorate(operation: Body[A, P, T]) -> Method[A, P, T]:
        @wraps(operation)
        async def method(self: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = await start(self._database, lambda db: operation(self, db, *args, **kwargs))
            return result

        return method

    return decorate


reads = _run_by(Database.read)
"""Decorator of a small read; see `Database.read`."""

reads_aside = _run_by(Database.read_aside)
"""Decorator of a read of any size; see `Database.read_aside`."""

writes = _run_by(Database.write)
"""Decorator of a transaction; the method returns once that is on disk."""

writes_and_scrubs = _run_by(Database.write_and_scrub)
"""Decorator of a transaction; the log is emptied before the method returns."""

writes_and_scrubs_soon = _run_by(Database.write_and_scrub_soon)
"""Decorator of a transaction; the log is emptied a moment later."""


def writes_and_scrubs_if_gone(operation: Body[A, P, tuple[T, bool]]) -> Method[A, P, T]:
    """Run in a transaction; empty the log a moment later if words must not be found again.

    The operation returns its result, and whether the words of a message that has disappeared were
    deleted. See `StoreContext.scrub_if_gone`.
    """

    @wraps(operation)
    async def method(self: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result, expired = await self._database.write(
            lambda db: operation(self, db, *args, **kwargs)
        )
        self._context.scrub_if_gone(expired=expired)
        return result

    return method


def of_aggregate(operation: Callable[Concatenate[Session, P], T]) -> Body[Any, P, T]:
    """Return a function as the body of a method that does not use its object."""
    return lambda _self, db, /, *args, **kwargs: operation(db, *args, **kwargs)


def writes_later(operation: Body[A, P, None]) -> Callable[Concatenate[A, P], None]:
    """Queue a transaction, and wait for nothing."""

    @wraps(operation)
    def write(self: A, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._database.write_later(lambda db: operation(self, db, *args, **kwargs))

    return write
