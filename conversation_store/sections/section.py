"""What all sections of an open store work with, and how their operations reach the database.

An operation is written once, as a method that is given `execute`; a decorator says when it runs.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from conversation_store.database import Database, Execute
from conversation_store.models import AcceptedMessage

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Section")

Operation = Callable[Concatenate[S, Execute, P], T]
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


@dataclass(slots=True)
class StoreContext:
    """The database, and what is the same for everything in it.

    Attributes:
        database: runs the operations.
        path: of its file.
        clock: seconds since 1970.
        retention_days: messages older than this are deleted; 0 keeps nothing of a turn that ended.
    """

    database: Database
    path: Path
    clock: Callable[[], float]
    retention_days: int

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        return int(self.clock() * 1_000)

    def has_disappeared(self, accepted: AcceptedMessage) -> bool:
        """Whether a message's timer has run out."""
        expires_at = accepted.message.expires_at
        return expires_at is not None and expires_at <= self.now_ms()

    def leave_no_words(self, *, have_disappeared: bool) -> None:
        """Have the log forget what was just dropped from rows, where nobody is to find it again."""
        if have_disappeared or self.retention_days == 0:
            self.database.scrub_soon()


class Section:
    """What an open store is asked about one kind of things.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._database = context.database


def reads(operation: Operation[S, P, T]) -> Method[S, P, T]:
    """Let an operation that reads a little run at once; see `Database.read`."""

    @wraps(operation)
    async def read(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(lambda execute: operation(self, execute, *args, **kwargs))

    return read


def reads_aside(operation: Operation[S, P, T]) -> Method[S, P, T]:
    """Let an operation that may read much run on a thread; see `Database.read_aside`."""

    @wraps(operation)
    async def read(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read_aside(
            lambda execute: operation(self, execute, *args, **kwargs)
        )

    return read


def writes(operation: Operation[S, P, T]) -> Method[S, P, T]:
    """Let an operation run in a transaction; it returns once that is on disk."""

    @wraps(operation)
    async def write(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(lambda execute: operation(self, execute, *args, **kwargs))

    return write


def writes_ordered(operation: Operation[S, P, T]) -> Method[S, P, T]:
    """Let an operation run in a transaction; it returns before that is on disk, in its order."""

    @wraps(operation)
    async def write(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write_ordered(
            lambda execute: operation(self, execute, *args, **kwargs)
        )

    return write


def writes_later(operation: Operation[S, P, None]) -> Callable[Concatenate[S, P], None]:
    """Let an operation run in a transaction, and wait for nothing."""

    @wraps(operation)
    def write(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._database.write_later(lambda execute: operation(self, execute, *args, **kwargs))

    return write
