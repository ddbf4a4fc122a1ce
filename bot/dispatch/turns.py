"""Turn control: runs a chat's turn so that `!stop` can end it, and bounds how many run."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog

from bot.dispatch.mailboxes import Mailboxes
from bot.observability import metrics
from conversation_store.store import ConversationStore

log = structlog.get_logger()

T = TypeVar("T")

MAX_RUNNING_TURNS: Final = 1_024
"""Turns in progress in all chats together; the others wait in their mailboxes."""

STOP_SECONDS: Final = 5.0
"""How long a turn may take to let go once it is told to stop."""


class TurnStopped(Exception):
    """The turn was ended by `!stop`; its message gets no answer."""


@dataclass(slots=True)
class _Running:
    """The turn that a chat has in progress."""

    inbox_id: int
    scope: asyncio.Timeout
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False


class Turns:
    """The turns in progress.

    Args:
        mailboxes: where a chat's further messages wait.
        store: where dropped messages are closed.
    """

    def __init__(self, mailboxes: Mailboxes, store: ConversationStore) -> None:
        self._mailboxes = mailboxes
        self._store = store
        self._running: dict[str, _Running] = {}
        self._places = asyncio.Semaphore(MAX_RUNNING_TURNS)

    @property
    def running(self) -> int:
        """How many turns are in progress."""
        return len(self._running)

    async def run(self, chat: str, inbox_id: int, work: Coroutine[Any, Any, T]) -> T:
        """Do a turn's stoppable part: everything before its answer is stored.

        Raises:
            TurnStopped: somebody stopped it.
        """
        # A time-out without a deadline is a cancel scope: `stop` moves the deadline to now.
        scope = asyncio.timeout(None)
        running = _Running(inbox_id, scope)
        try:
            async with scope:
                self._running[chat] = running
                metrics.RUNNING_TURNS.inc()
                async with self._places:
                    return await work
        except TimeoutError:
            if scope.expired():
                running.stopped = True
                raise TurnStopped from None
            raise
        finally:
            work.close()
            metrics.RUNNING_TURNS.dec()
            del self._running[chat]
            running.ended.set()

    async def stop(self, chat: str, *, before: int) -> int:
        """Stop what was asked for in a chat before a message: its turn and what waits behind it.

        Args:
            chat: the chat.
            before: the inbox id of the message that asks for it.

        Returns:
            How many messages that were.
        """
        dropped = self._mailboxes.drop(chat, before=before)
        running = self._running.get(chat)
        stopped = running is not None and running.inbox_id < before and await _end(running)
        await self._store.stop(dropped)
        return len(dropped) + stopped


async def _end(running: _Running) -> bool:
    """Tell a turn to let go, and return whether it does: its answer may have been found by now."""
    if running.scope.when() is None:
        running.scope.reschedule(asyncio.get_running_loop().time())
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await running.ended.wait()
    except TimeoutError:
        log.warning("turn.slow_to_stop", turn=running.inbox_id)
        return True
    return running.stopped
