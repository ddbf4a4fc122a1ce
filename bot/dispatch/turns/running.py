"""Turn control: runs a chat's turn so that it can be stopped or changed; bounds how many run."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog

from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.mailboxes import Mailboxes
from bot.dispatch.turns.suspended import SuspendedTurns
from bot.observability import metrics
from conversation_store.models import AcceptedMessage, ChatId
from conversation_store.store import ConversationStore

log = structlog.get_logger()

T = TypeVar("T")

MAX_RUNNING_TURNS: Final = 1_024
"""Turns in progress in all chats together; the others wait in their mailboxes."""

STOP_SECONDS: Final = 5.0
"""How long a turn may take to let go once it is told to stop."""


class TurnStopped(Exception):
    """The turn was ended by `!stop`; its messages get no answer."""


class TurnChanged(Exception):
    """What the turn is to answer was edited or deleted; its pieces are now other ones."""


@dataclass(slots=True)
class _Running:
    """The turn that a chat has in progress.

    Attributes:
        pieces: the messages that it answers; its work may add some.
        scope: ends the work.
        changes: what a message, by its id, is to be replaced by once the work has ended.
        interruption: as what it ends before its answer is found; None while it goes on.
        ended: set when the work has.
    """

    pieces: list[AcceptedMessage]
    scope: asyncio.Timeout
    changes: dict[int, AcceptedMessage | None] = field(default_factory=dict)
    interruption: type[TurnStopped | TurnChanged] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def piece(self, inbox_id: int) -> AcceptedMessage | None:
        """Return one of its messages as it reads now."""
        found = next((piece for piece in self.pieces if piece.id == inbox_id), None)
        return None if found is None else self.changes.get(inbox_id, found)

    def change_pieces(self) -> None:
        """Let the pieces be what they were changed to."""
        changed = [self.changes.get(piece.id, piece) for piece in self.pieces]
        self.pieces[:] = [piece for piece in changed if piece is not None]

    def interrupt(self, interruption: type[TurnStopped | TurnChanged]) -> None:
        """Cancel the work; once stopped it stays stopped."""
        if self.interruption is not TurnStopped:
            self.interruption = interruption
        if self.scope.when() is None:
            self.scope.reschedule(asyncio.get_running_loop().time())


class Turns:
    """The turns in progress.

    Args:
        mailboxes: where a chat's further messages wait.
        store: where dropped messages are closed.
        file_cleanup: deletes the files of dropped messages.
        suspended: turns that wait for people, and are in progress nowhere.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        store: ConversationStore,
        file_cleanup: FileCleanup,
        suspended: SuspendedTurns,
    ) -> None:
        self._mailboxes = mailboxes
        self._store = store
        self._file_cleanup = file_cleanup
        self._suspended = suspended
        self._running: dict[str, _Running] = {}
        self._places = asyncio.Semaphore(MAX_RUNNING_TURNS)

    @property
    def running(self) -> int:
        """How many turns are in progress."""
        return len(self._running)

    @property
    def has_room(self) -> bool:
        """Whether another turn could begin at once."""
        return not self._places.locked()

    async def run(
        self,
        chat: ChatId,
        pieces: list[AcceptedMessage],
        work: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Do a turn's stoppable part: everything before its answer is stored.

        Args:
            chat: where.
            pieces: the messages that it answers; once it has ended, as they were changed meanwhile.
            work: what is done; None where it has found nothing to be stored.

        Raises:
            TurnStopped: somebody stopped it.
            TurnChanged: a piece was edited or deleted meanwhile.
        """
        # A time-out without a deadline is a cancel scope: letting go moves the deadline to now.
        scope = asyncio.timeout(None)
        running = _Running(pieces, scope)
        try:
            async with scope:
                self._running[chat] = running
                metrics.RUNNING_TURNS.inc()
                async with self._places:
                    done = await work()
        except TimeoutError:
            if not scope.expired() or running.interruption is None:
                raise
            raise running.interruption from None
        finally:
            if running.interruption is not TurnStopped:
                running.change_pieces()
            metrics.RUNNING_TURNS.dec()
            del self._running[chat]
            running.ended.set()
        if running.interruption is TurnChanged:  # told so at the very moment when it was done
            raise TurnChanged
        if running.interruption is TurnStopped and done is None:
            raise TurnStopped
        running.interruption = None
        return done

    def piece(self, chat: ChatId, inbox_id: int) -> AcceptedMessage | None:
        """Return a message that the chat's running turn answers, as it reads now."""
        running = self._running.get(chat)
        return None if running is None else running.piece(inbox_id)

    def revise(self, accepted: AcceptedMessage) -> bool:
        """Let the chat's running turn begin afresh with a changed message; False if it has none."""
        return self._change(accepted.message.chat, accepted.id, accepted)

    def withdraw(self, chat: ChatId, inbox_id: int) -> bool:
        """Let the chat's running turn begin afresh without a message; False if it has none."""
        return self._change(chat, inbox_id, None)

    def _change(self, chat: ChatId, inbox_id: int, instead: AcceptedMessage | None) -> bool:
        running = self._running.get(chat)
        if running is None or running.piece(inbox_id) is None:
            return False
        running.changes[inbox_id] = instead
        running.interrupt(TurnChanged)
        return True

    async def stop(self, chat: ChatId, *, before: int) -> int:
        """Stop what was asked for in a chat before a message.

        That is its turn, those that wait for people, and what waits behind it.

        Args:
            chat: the chat.
            before: the inbox id of the message that asks for it.

        Returns:
            How many messages that were.
        """
        dropped = self._mailboxes.drop(chat, before=before)
        waited = self._suspended.take_before(chat, before)
        running = self._running.get(chat)
        stopped = 0
        if running is not None and running.pieces[0].id < before:
            stopped = len(running.pieces) if await _end(running) else 0
        for accepted in dropped:
            self._file_cleanup.files_of(*accepted.messages)
        await self._stop_waiting(waited)
        await self._store.messages.stop([accepted.id for accepted in dropped])
        return len(waited) + len(dropped) + stopped

    async def clear(self, chat: ChatId) -> int:
        """Forget a chat's conversation, and end the turns there that wait for people.

        Returns:
            how many turns that were.
        """
        waited = self._suspended.take_before(chat)
        await self._stop_waiting(waited)
        return len(waited) + await self._store.turns.clear(chat)

    async def _stop_waiting(self, turn_ids: Sequence[int]) -> None:
        """Close the messages of turns that waited for people."""
        for turn_id in turn_ids:
            if (accepted := await self._store.questions.suspended_turn(turn_id)) is not None:
                self._file_cleanup.files_of(*accepted.messages)
        await self._store.messages.stop(turn_ids)


async def _end(running: _Running) -> bool:
    """Tell a turn to let go, and return whether it does: its answer may have been found by now."""
    running.interrupt(TurnStopped)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await running.ended.wait()
    except TimeoutError:
        log.warning("turn.slow_to_stop", turn=running.pieces[0].id)
        return True
    return running.interruption is TurnStopped
