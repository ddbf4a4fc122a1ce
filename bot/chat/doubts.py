"""Settle sends with an unknown result by receipts of phones, also after a crash.

A doubt is a send that may have arrived: its reply was lost, an error came that may follow a
delivery, or the process was killed before the bot learned the timestamp. A receipt that fits
exactly one doubt settles it, see `bot.signal.receipts`. Without a receipt the bot sends again,
because a copy is better than a loss. If a phone confirms both copies later, the bot deletes the
one that the store does not know.

A receipt comes only once, and this process may be killed too. So the store keeps the doubts, and
the receipts that may settle them.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from bot.errors import SignalError, SignalPassedOver, SignalTimeout
from bot.signal.messenger import Messenger, Poll
from bot.signal.receipts import CLOCK_SKEW_MS, LATE_START_MS, Attempt
from conversation_store.doubts import ELSEWHERE
from conversation_store.models import (
    Attachment,
    ChatId,
    Doubt,
    OutgoingMessage,
    StyleRange,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()

RECEIPT_SECONDS: Final = 15.0
"""Time for the receipt of a send with an unknown result; longer than a reconnect."""

PASSED_OVER_SECONDS: Final = 3.0
"""The same for a send that signal-cli has passed over: it was almost certainly not done."""

PROOF_SECONDS: Final = 3.0
"""After the connection began, the bot waits this long for receipts of earlier processes' sends."""


@dataclass(eq=False, repr=False, slots=True)
class Doubts:
    """Sends in doubt of this process and of earlier ones."""

    messenger: Messenger
    store: ConversationStore
    _of_waiting: defaultdict[int, list[Attempt]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )
    _members: dict[ChatId, frozenset[str] | None] = field(default_factory=dict, init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self.messenger.receipts.keep = self._keep
        self.messenger.receipts.known = self.store.doubts.known

    async def resume(self, *, reacts: bool) -> None:
        """Load the doubts of earlier processes; await this before anything is sent.

        Args:
            reacts: the bot reacts to each message. Phones confirm reactions too, and their
                timestamps are unknown.
        """
        receipts = self.messenger.receipts
        sends, confirmed = await self.store.doubts.load()
        attempts = []
        for doubt in sends:
            attempt = Attempt(doubt.chat, doubt.since, doubt.until, row=doubt.row)
            attempts.append(attempt)
            if doubt.timestamp is not None:
                receipts.sent_again(attempt, doubt.timestamp, is_edit=doubt.is_edit)
            elif doubt.row is not None:
                self._of_waiting[doubt.row].append(attempt)
            if reacts:
                attempts.append(Attempt(doubt.chat, doubt.since, doubt.until))
        for attempt in attempts:
            receipts.add(attempt)
        for timestamp in await self.store.doubts.known([timestamp for timestamp, _ in confirmed]):
            receipts.know(timestamp)
        for timestamp, person in confirmed:
            receipts.confirm(timestamp, person, attempts)

    def is_in_doubt(self, part: OutgoingMessage) -> bool:
        """Whether a message may have been sent already."""
        return bool(self._of_waiting.get(part.id))

    async def earlier_proof(self, part: OutgoingMessage) -> int | None:
        """Return the timestamp of a message that an earlier process has sent, if that is proven."""
        began = self.messenger.connected_since
        passed = 0.0 if began is None else time.monotonic() - began
        return await self._proof(self._of_waiting[part.id], PROOF_SECONDS - passed)

    async def settle(
        self, chat: ChatId, error: SignalTimeout, seconds: float, *, row: int | None = None
    ) -> int | None:
        """Wait for a receipt that proves a send in doubt; None after so many seconds.

        Args:
            row: the message in the outbox, if it has one. Any of its sends counts.

        Returns:
            the timestamp of the message.
        """
        attempt, attempts = error.sending, [] if row is None else self._of_waiting[row]
        if isinstance(attempt, Attempt) and attempt.until is not None:
            attempt.row = row
            attempts.append(attempt)
            self.store.doubts.note(Doubt(row, chat, attempt.since, attempt.until))
        passed_over = isinstance(error, SignalPassedOver)
        bound = min(seconds, PASSED_OVER_SECONDS) if passed_over else seconds
        timestamp = await self._proof(attempts, bound)
        if attempt in attempts and (passed_over or (row is None and timestamp is not None)):
            attempts.remove(attempt)
            self.messenger.receipts.drop(attempt)
        return timestamp

    def sent(self, part: OutgoingMessage, timestamp: int) -> None:
        """Note that a message was sent; its other doubts are about second copies."""
        receipts = self.messenger.receipts
        for attempt in self._of_waiting.pop(part.id, ()):
            if attempt.may_have(timestamp, (), timestamp):
                receipts.drop(attempt)
            else:
                receipts.sent_again(attempt, timestamp, is_edit=part.replaces is not None)

    async def run(self, queue: Callable[[OutgoingMessage], None]) -> None:
        """Delete second copies, until cancelled; raises StoreError.

        Args:
            queue: sends a stored message after everything its chat has waiting.
        """
        receipts = self.messenger.receipts
        while True:
            await receipts.news.wait()
            receipts.news.clear()
            await self._learn_members()
            for attempt, copy in await receipts.copies():
                receipts.know(copy)
                if attempt.row is None:
                    continue
                removal = await self.store.doubts.remove_copy(attempt.row, copy)
                if removal is not None:
                    log.info("outbox.copy_deleted")
                    queue(removal)

    async def _proof(self, attempts: Sequence[Attempt], seconds: float) -> int | None:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._learn_members()
        timestamp = await self.messenger.receipts.wait_for_proof(attempts, ends_at - clock())
        if timestamp is not None:
            log.info("outbox.proven_by_receipt")
            self.messenger.receipts.know(timestamp)
        return timestamp

    async def _learn_members(self) -> None:
        """Ask Signal for the members of the groups with sends in doubt."""
        async with self._asking:
            for attempt in self.messenger.receipts.in_unknown_groups:
                if attempt.chat not in self._members:
                    try:
                        group = await self.messenger.group(attempt.chat)
                    except SignalError as error:
                        log.info("outbox.members_unknown", reason=type(error).__name__)
                        continue
                    self._members[attempt.chat] = None if group is None else group.members
                attempt.people = self._members[attempt.chat]

    def _keep(self, timestamp: int, person: str | None) -> None:
        self.store.doubts.confirm(timestamp, ELSEWHERE if person is None else person)


@dataclass(eq=False, repr=False, slots=True)
class NotedSends:
    """Sends messages without an outbox row: progress, questions, polls.

    Phones confirm these messages as well. The store notes their timestamps, so that after a crash
    no such receipt counts for an answer. Nothing here waits for the disk.
    """

    doubts: Doubts

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
        sending = self.doubts.messenger.send(
            chat, text, styles=styles, replaces=replaces, attachments=attachments
        )
        return await self._noted(chat, sending)

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it; raises SignalError."""
        return await self._noted(chat, self.doubts.messenger.send_poll(chat, poll))

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Close one of the bot's polls; raises SignalError."""
        await self.doubts.messenger.end_poll(chat, timestamp)

    async def _noted(self, chat: ChatId, sending: Awaitable[int]) -> int:
        store, since = self.doubts.store.doubts, int(time.time() * 1_000) - CLOCK_SKEW_MS
        try:
            timestamp = await sending
        except SignalTimeout as error:
            proven = await self.doubts.settle(chat, error, RECEIPT_SECONDS)
            if proven is None:
                raise
            timestamp = proven
        except asyncio.CancelledError:
            store.note(Doubt(None, chat, since, int(time.time() * 1_000) + LATE_START_MS))
            raise
        store.confirm(timestamp, ELSEWHERE)
        return timestamp
