"""Joining: a person's next messages become part of the turn that answers the last one.

Before its first request and while its tools run, a turn takes them before it asks the model again.
While the model writes, it cancels the request and asks again with the new words.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeVar

import structlog

from bot.chat.replies import parse_command
from bot.chat.waiting import Queue
from conversation_store.models import AcceptedMessage, ReceivedKind

log = structlog.get_logger()

T = TypeVar("T")

MAX_PIECES: Final = 20
"""Messages that one turn answers; further ones get a turn of their own."""

MAX_JOINED_BYTES: Final = 4_096
"""UTF-8 bytes of messages that join between two requests. Longer ones wait for the next request, or
for a turn of their own, which has more room."""

MAX_CANCELLED: Final = 3
"""Requests that one turn cancels, because each costs money; later messages wait for their turn."""


@dataclass(eq=False, repr=False, slots=True)
class Joining:
    """The messages that join one turn.

    Attributes:
        pieces: the messages of the turn, oldest first.
        joined: called with the messages that have just joined.
    """

    queue: Queue
    pieces: list[AcceptedMessage]
    is_verified: Callable[[str], bool]
    _: KW_ONLY
    joined: Callable[[Sequence[AcceptedMessage]], None]
    clock: Callable[[], float] = time.time
    _cancelled: int = field(default=0, init=False)

    def take(self, *, begun: bool = True) -> Sequence[AcceptedMessage]:
        """Move messages of the asker from the chat's queue to the pieces; return them.

        Each message is in the queue or in the pieces at any moment, so edits, deletions and `!stop`
        find it. It stops at the first message that does not join; no message overtakes that one.

        Args:
            begun: the turn is stored, and so has room for short messages without files only.
        """
        taken: list[AcceptedMessage] = []
        room = MAX_JOINED_BYTES
        while (following := self._next(room, begun=begun)) is not None:
            self.queue.replace(following.id, None)
            self.pieces.append(following)
            taken.append(following)
            room -= len(following.message.text.encode())
        if taken:
            log.debug("turn.joined", turn=self.pieces[0].id, count=len(taken))
            self.joined(taken)
        return taken

    async def unless_one_comes(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask the model; return None and cancel the request if a message comes that joins."""
        if self._cancelled == MAX_CANCELLED:
            return await ask()
        if self._next() is not None:
            return None
        # A time-out without a deadline is a cancel scope: a message moves the deadline to now.
        scope = asyncio.timeout(None)

        def arrived() -> None:
            if scope.when() is None and self._next() is not None:
                scope.reschedule(asyncio.get_running_loop().time())

        try:
            async with scope:
                with self.queue.watched(arrived):
                    return await ask()
        except TimeoutError:
            if not scope.expired():
                raise
        self._cancelled += 1
        return None

    def _next(self, room: int = MAX_JOINED_BYTES, *, begun: bool = True) -> AcceptedMessage | None:
        """Return the chat's next message if it joins."""
        if len(self.pieces) >= MAX_PIECES:
            return None
        following = self.queue.next_message()
        if following is None or following.begun or following.joined:
            return None
        message = following.message
        is_short = not message.files and len(message.text.encode()) <= room
        expires_at = message.expires_at
        joins = (
            message.kind is ReceivedKind.MESSAGE
            and message.author == self.pieces[0].message.author
            and parse_command(message.text, {}) is None
            and bool(message.text.strip() or message.files)
            and (is_short or not begun)
            and (expires_at is None or expires_at > self.clock() * 1_000)
            and self.is_verified(message.author)
        )
        return following if joins else None
