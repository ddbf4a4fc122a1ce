"""The part of a turn that `!stop`, edits and deletions can end: all before its answer is stored."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from bot.observability import metrics
from conversation_store.models import AcceptedMessage

log = structlog.get_logger()

T = TypeVar("T")

MAX_RUNNING_TURNS: Final = 1_024
"""Turns in progress in all chats together; the others wait in their queues."""

STOP_SECONDS: Final = 5.0
"""How long a turn may take to let go once it is told to stop."""


class TurnStopped(Exception):
    """`!stop` ended the turn; its messages get no answer."""


class TurnChanged(Exception):
    """A message of the turn was edited or deleted, so its pieces have changed."""


@dataclass(eq=False, slots=True)
class RunningTurn:
    """The turn that a chat has in progress.

    Attributes:
        pieces: the messages that it answers; its work may add some.
    """

    pieces: list[AcceptedMessage]
    # A time-out without a deadline is a cancel scope: letting go moves the deadline to now.
    _scope: asyncio.Timeout = field(default_factory=partial(asyncio.timeout, None), init=False)
    _changes: dict[int, AcceptedMessage | None] = field(default_factory=dict, init=False)
    _interruption: type[TurnStopped | TurnChanged] | None = field(default=None, init=False)
    _ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], places: asyncio.Semaphore) -> T:
        """Run the work of the turn; apply edits and deletions to the pieces at its end.

        Args:
            work: returns None if it has nothing to store.
            places: for turns in progress.

        Raises:
            TurnStopped: `!stop` ended the turn.
            TurnChanged: a piece was edited or deleted in the meantime.
        """
        metrics.RUNNING_TURNS.inc()
        try:
            async with self._scope, places:
                done = await work()
        except TimeoutError:
            if not self._scope.expired() or self._interruption is None:
                raise
            raise self._interruption from None
        finally:
            if self._interruption is not TurnStopped:
                changed = [self._changes.get(piece.id, piece) for piece in self.pieces]
                self.pieces[:] = [piece for piece in changed if piece is not None]
            metrics.RUNNING_TURNS.dec()
            self._ended.set()
        if self._interruption is TurnChanged:  # told so at the very moment when it was done
            raise TurnChanged
        if self._interruption is TurnStopped and done is None:
            raise TurnStopped
        self._interruption = None
        return done

    def piece(self, inbox_id: int) -> AcceptedMessage | None:
        """Return one of its messages as it reads now."""
        found = next((piece for piece in self.pieces if piece.id == inbox_id), None)
        return None if found is None else self._changes.get(inbox_id, found)

    def change(self, inbox_id: int, instead: AcceptedMessage | None) -> bool:
        """Start again with a changed message, or without it; False if it has no such message."""
        if self.piece(inbox_id) is None:
            return False
        self._changes[inbox_id] = instead
        self._interrupt(TurnChanged)
        return True

    async def stop(self) -> bool:
        """Stop the turn; return False if its answer was complete before."""
        self._interrupt(TurnStopped)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            log.warning("turn.slow_to_stop", turn=self.pieces[0].id)
            return True
        return self._interruption is TurnStopped

    def _interrupt(self, interruption: type[TurnStopped | TurnChanged]) -> None:
        """Cancel the work; once stopped it stays stopped."""
        if self._interruption is not TurnStopped:
            self._interruption = interruption
        if self._scope.when() is None:
            self._scope.reschedule(asyncio.get_running_loop().time())
