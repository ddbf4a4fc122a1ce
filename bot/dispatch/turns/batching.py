"""People write in several messages: those that follow each other closely become one turn."""

import time
from collections.abc import Callable
from typing import Final

from bot.dispatch.mailboxes import Mailboxes
from conversation_store.models import AcceptedMessage, ChatId

MAX_PIECES: Final = 20
"""Messages that one turn answers; who writes more in one go gets another answer."""

PAUSE_SECONDS: Final = 0.05
"""Silence after which the person may have finished; messages of one burst follow faster."""


class Batching:
    """Gathers what a person writes in one go.

    Args:
        mailboxes: where further messages come in.
        settle_seconds: silence that ends a person's words; 0 answers each message alone.
        clock: seconds since 1970.

    Attributes:
        settle_seconds: may be changed at any time.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        *,
        settle_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mailboxes = mailboxes
        self.settle_seconds = settle_seconds
        self._clock = clock

    async def gather(
        self,
        chat: ChatId,
        pieces: list[AcceptedMessage],
        *,
        paused: Callable[[], None] = lambda: None,
    ) -> None:
        """Wait until a person has finished, and add what was written to the pieces.

        Of what waits already, messages join that were sent close to each other; of what comes in
        meanwhile, all of the same author. It ends at once where something else waits.

        Args:
            chat: the chat.
            pieces: the messages so far, which others are added to.
            paused: called whenever the person pauses and may have finished with these pieces.
        """
        if not self.settle_seconds:
            return
        began_at = self._clock() * 1_000
        paused_after = 0

        def joins(following: AcceptedMessage) -> bool:
            last, message = pieces[-1].message, following.message
            in_one_go = message.sent_at - last.sent_at <= self.settle_seconds * 1_000
            same_author = message.author == last.author
            return same_author and (in_one_go or message.received_at >= began_at)

        while len(pieces) < MAX_PIECES:
            following = self._mailboxes.take_joining(chat, joins)
            if following is not None:
                pieces.append(following)
                continue
            silent = self._clock() - pieces[-1].message.received_at / 1_000
            left = min(self.settle_seconds - silent, self.settle_seconds)
            if left <= 0 or self._mailboxes.has_waiting(chat):
                return
            if len(pieces) == paused_after:
                await self._mailboxes.arrival(chat, seconds=left)
            elif not await self._mailboxes.arrival(chat, seconds=min(left, PAUSE_SECONDS)):
                paused_after = len(pieces)
                paused()
