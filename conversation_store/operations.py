"""How the methods of an open store reach the database.

A method that needs one transaction is written as a function of a `Session`; a decorator says how it
runs. Callers pass all arguments but the session.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from conversation_store.connections import Session
from conversation_store.database import Database

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound="Aggregate")

Operation = Callable[Concatenate[A, Session, P], T]
Method = Callable[Concatenate[A, P], Coroutine[Any, Any, T]]


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

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        return int(self.clock() * 1_000)

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
        return self._context.now_ms()


def _method(
    start: Callable[[Database, Callable[[Session], Any]], Coroutine[Any, Any, Any]],
    operation: Operation[A, P, T],
) -> Method[A, P, T]:
    @wraps(operation)
    async def method(self: A, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await start(self._database, lambda db: operation(self, db, *args, **kwargs))
        return result

    return method


def reads(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run a small read on the event loop; see `Database.read`."""
    return _method(Database.read, operation)


def reads_ended(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run a small read that does not wait for writes that are still on their way to the disk."""
    return _method(partial(Database.read, latest=False), operation)


def reads_aside(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run a read of any size on a thread; see `Database.read_aside`."""
    return _method(Database.read_aside, operation)


def writes(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run in a transaction; the method returns once that is on disk."""
    return _method(Database.write, operation)


def writes_ordered(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run in a transaction; the method returns before that is on disk. See `write_ordered`."""
    return _method(Database.write_ordered, operation)


def writes_and_scrubs(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run in a transaction, and empty the log before the method returns."""

    async def write(database: Database, run: Callable[[Session], T]) -> T:
        result = await database.write(run)
        await database.scrub()
        return result

    return _method(write, operation)


def writes_and_scrubs_soon(operation: Operation[A, P, T]) -> Method[A, P, T]:
    """Run in a transaction, and empty the log a moment later."""

    async def write(database: Database, run: Callable[[Session], T]) -> T:
        result = await database.write(run)
        database.scrub_soon()
        return result

    return _method(write, operation)


def writes_and_scrubs_if_gone(operation: Operation[A, P, tuple[T, bool]]) -> Method[A, P, T]:
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


def writes_later(operation: Operation[A, P, None]) -> Callable[Concatenate[A, P], None]:
    """Queue a transaction, and wait for nothing."""

    @wraps(operation)
    def write(self: A, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._database.write_later(lambda db: operation(self, db, *args, **kwargs))

    return write
