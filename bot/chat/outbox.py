"""Send stored answers: in order, with retries, then mark them; log the ones that are given up.

Each part is on disk before it comes here, and is sent only if it is still there. Without a
connection, it waits without a limit. The worker of the chat waits here, so the messages of a chat
leave in their order. Messages to a person with a new, untrusted key are put aside until the key is
trusted.

A send with an unknown result is a doubt. The bot waits for a receipt that settles it, and then
sends again. Signal may limit a chat for an hour, also after it has delivered the message, so the
pauses grow. Other chats go on: if Signal limits them as well, it says so.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

import structlog

from bot.backoff import Backoff
from bot.chat.access import Access
from bot.chat.doubts import PASSED_OVER_SECONDS, RECEIPT_SECONDS, Doubts
from bot.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.language.languages import Languages
from bot.observability import metrics
from bot.signal.messenger import Messenger
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.store import ConversationStore

log = structlog.get_logger()

MAX_ATTEMPTS: Final = 10
"""After so many failed attempts an answer is given up; its text stays in the store."""

RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
LIMITED: Final = Backoff(first_seconds=2 * RECEIPT_SECONDS, longest_seconds=3_600.0)
"""Pauses after a rate limit: two or three hours in all."""

RECONNECT_POLL_SECONDS: Final = 0.25
"""How often a part without a connection looks again."""


@dataclass(eq=False, repr=False, slots=True)
class Outbox:
    """Sends what the store holds.

    Attributes:
        untrusted: private chats to which a send has failed because of the person's new key.
        doubts: sends with an unknown result.
    """

    messenger: Messenger
    store: ConversationStore
    _: KW_ONLY
    untrusted: asyncio.Queue[ChatId] = field(default_factory=asyncio.Queue)
    doubts: Doubts = field(init=False)
    _put_aside: dict[str, list[OutgoingMessage]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.doubts = Doubts(self.messenger, self.store)

    async def deliver(self, parts: Sequence[OutgoingMessage], *, just_stored: bool = False) -> bool:
        """Send parts one after the other; returns when each is sent, put aside or given up.

        Args:
            just_stored: the first part cannot have changed since, so it is not read again.

        Returns:
            whether there were any parts, and Signal accepted all of them.
        """
        sent = 0
        for number, part in enumerate(parts):
            if part.chat in self._put_aside:
                self._put_aside[part.chat].append(part)
            else:
                sent += await self._deliver(part, is_current=just_stored and not number)
        return 0 < sent == len(parts)

    def take_back(self, chat: ChatId) -> tuple[OutgoingMessage, ...]:
        """Return the parts that were put aside for a chat, to be delivered now."""
        return tuple(self._put_aside.pop(chat, ()))

    async def _deliver(self, part: OutgoingMessage, *, is_current: bool) -> bool:
        """Send a part until it is sent, withdrawn, put aside or given up; whether it was sent."""
        attempt, timestamp = part.attempts, None
        if self.doubts.is_in_doubt(part):
            await self._until_connected()
            timestamp = await self.doubts.earlier_proof(part)
        while timestamp is None:
            waited = await self._until_connected()
            if waited or not is_current:
                current = await self.store.outbox.as_waiting(part)
                if current is None:
                    log.info("outbox.withdrawn")
                    return False
                part = current
            is_current = False
            try:
                timestamp = await self._send(part)
            except SignalError as error:
                if isinstance(error, SignalUntrusted) and not part.chat.is_group:
                    log.warning("outbox.put_aside")
                    self._put_aside.setdefault(part.chat, []).append(part)
                    self.untrusted.put_nowait(part.chat)
                    return False
                if isinstance(error, SignalUnavailable) and not self.messenger.connected:
                    continue
                attempt += not isinstance(error, SignalPassedOver)
                if isinstance(error, SignalRejected) and part.replaces is not None and part.text:
                    # The old message is gone, or too old to be edited: better twice than never.
                    part = replace(part, replaces=None)
                    continue
                is_last = attempt >= MAX_ATTEMPTS or isinstance(error, SignalRejected)
                timestamp = await self._settled(part, attempt, error, is_last=is_last)
                if timestamp is None and is_last:
                    await self.store.outbox.mark_failed(part, give_up=True)
                    metrics.GIVEN_UP.inc()
                    log.error("outbox.gave_up", attempts=attempt, reason=type(error).__name__)
                    return False
        await self.store.outbox.mark_sent(part, timestamp)
        self.doubts.sent(part, timestamp)
        return True

    async def _send(self, part: OutgoingMessage) -> int:
        """Send a part and return its timestamp; a deletion returns that of the deleted message."""
        if part.replaces is not None and _is_deletion(part):
            await self.messenger.delete(part.chat, part.replaces)
            return part.replaces
        return await self.messenger.send(
            part.chat,
            part.text,
            styles=part.styles,
            quote=part.quote,
            replaces=part.replaces,
            attachments=part.attachments,
        )

    async def _settled(
        self, part: OutgoingMessage, attempt: int, error: SignalError, *, is_last: bool
    ) -> int | None:
        """Wait after a failed attempt; return the timestamp if a receipt proves the send."""
        delay = _delay(attempt, error)
        if is_last:
            delay = RECEIPT_SECONDS if isinstance(error, SignalTimeout) else 0.0
        else:
            if not isinstance(error, SignalPassedOver):
                await self.store.outbox.mark_failed(part, give_up=False)
            reason, seconds = type(error).__name__, round(delay, 2)
            log.warning("outbox.will_retry", attempt=attempt, reason=reason, delay_seconds=seconds)
        if not isinstance(error, SignalTimeout):
            await asyncio.sleep(delay)
            return None
        row = None if _is_deletion(part) else part.id
        timestamp = await self.doubts.settle(part.chat, error, delay, row=row)
        return part.replaces if row is None and timestamp is not None else timestamp

    async def _until_connected(self) -> bool:
        """Wait while nothing can be sent, and return whether that was needed."""
        waited = False
        while not self.messenger.connected:
            waited = True
            await asyncio.sleep(RECONNECT_POLL_SECONDS)
        return waited


def _is_deletion(part: OutgoingMessage) -> bool:
    return part.replaces is not None and not part.text and not part.attachments


def _delay(attempt: int, error: SignalError) -> float:
    """Return the seconds until the next attempt; meanwhile a receipt may come."""
    match error:
        case SignalPassedOver():
            return PASSED_OVER_SECONDS
        case SignalRateLimited():
            asked = min(error.retry_after_seconds or 0.0, LIMITED.longest_seconds)
            return max(asked, LIMITED.seconds(attempt))
        case SignalTimeout():
            return RECEIPT_SECONDS + RETRY.seconds(attempt)
    return RETRY.seconds(attempt)


@dataclass(eq=False, repr=False, slots=True)
class Notices:
    """Messages that answer no message: stored first, then sent in the order of their chat.

    Attributes:
        waiting: stored messages; each is to be sent behind the waiting messages of its chat.
    """

    outbox: Outbox
    languages: Languages
    access: Access
    waiting: asyncio.Queue[OutgoingMessage] = field(default_factory=asyncio.Queue, init=False)

    @property
    def has_admins(self) -> bool:
        """Whether the bot has an admin."""
        return bool(self.access.admins)

    async def send(self, chat: ChatId, text: str) -> None:
        """Say something in a chat; returns when it is stored. Raises StoreError."""
        self.queue(await self.outbox.store.outbox.add_note(chat, self.languages.say(chat, text)))

    def queue(self, note: OutgoingMessage) -> None:
        """Send a stored message after the waiting messages of its chat."""
        self.waiting.put_nowait(note)

    def send_again(self, chat: ChatId) -> None:
        """Send the messages that were put aside for a chat."""
        for part in self.outbox.take_back(chat):
            self.queue(part)

    async def to_admins(self, text: str) -> None:
        """Say something to each admin in private."""
        for admin in sorted(self.access.admins):
            await self.send(ChatId.direct(admin), text)
