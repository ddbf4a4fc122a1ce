"""Messages that are in no outbox: signs of progress, questions, reminders.

Phones confirm them like any other. So that such a receipt is not taken for that of an answer after
a crash (see `doubts`), what was sent is noted: its timestamp, or that nobody told it.
"""

import time
from collections.abc import Awaitable, Sequence

from bot.errors import SignalUnavailable
from bot.messaging.messenger import Messenger, Poll
from bot.messaging.receipts import CLOCK_SKEW_MS
from conversation_store.models import Attachment, ChatId, Interrupted, StyleRange
from conversation_store.sections.doubts import ELSEWHERE
from conversation_store.store import ConversationStore


class NotedSends:
    """Sends, and notes in the store what was sent; waits for no disk.

    Args:
        channel: the Signal side.
        store: where it is noted.
    """

    def __init__(self, channel: Messenger, store: ConversationStore) -> None:
        self._channel = channel
        self._store = store

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Send a message and return Signal's timestamp of it; raises SignalError."""
        return await self._noted(
            chat,
            self._channel.send(
                chat, text, styles=styles, replaces=replaces, attachments=attachments
            ),
        )

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it; raises SignalError."""
        return await self._noted(chat, self._channel.send_poll(chat, poll))

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Let nobody vote any more in an own poll; raises SignalError."""
        await self._channel.end_poll(chat, timestamp)

    async def _noted(self, chat: ChatId, sending: Awaitable[int]) -> int:
        since_ms = now_ms() - CLOCK_SKEW_MS
        try:
            timestamp = await sending
        except SignalUnavailable:
            raise  # it was not sent
        except BaseException:  # also where nobody waits for it any more
            self._store.doubts.note_unnamed(Interrupted(None, chat, since_ms, now_ms()))
            raise
        self._store.doubts.confirm([(timestamp, ELSEWHERE)])
        return timestamp


def now_ms() -> int:
    """Return the time in ms since 1970, as signal-cli counts it."""
    return int(time.time() * 1_000)
