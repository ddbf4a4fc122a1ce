"""Evidence for sends whose answer was lost.

Signal has no key that makes a repeated send harmless, and when the connection breaks while a send
is in flight, the Signal side does not tell later whether it took the message. The phone of the
recipient does: its receipt names the message by the timestamp that the lost answer would have
told.

Why a receipt proves a send: signal-cli gives each message of the account a timestamp of its own,
and a person's phone confirms only what was sent to that person. So a confirmed timestamp that no
answer has told, and that is not older than the send, belongs to one of the sends without an
answer that may have reached the person: to this one, to another of the same chat, or to one to a
group. When more such timestamps are confirmed than there are other such sends, this send is among
them. A receipt may well come before the answer: until then its send counts as one without an
answer, and from then on its timestamp is known, so at no moment it proves a different send.

A phone confirms a reaction and a deletion like a message, so these count as sends, too. A timestamp
from after the end of another send is not that one's. A send that signal-cli passed over does not
count any more once its own wait for a receipt was in vain.

A message that the account's owner writes to the same person from another device is told apart by
its copy, which the owner's device sends to the bot's before the person's phone confirms it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from bot.errors import SignalError, SignalPassedOver, SignalTimeout
from bot.messaging.events import Evidence, SentElsewhere
from conversation_store.models import ChatId

MAX_CONFIRMED: Final = 1_000
MAX_KNOWN: Final = 1_000
MAX_UNANSWERED: Final = 2_000

CLOCK_SKEW_MS: Final = 2_000
"""How far the clock of signal-cli may be behind the bot's."""

LATE_START_MS: Final = 10_000
"""A request that signal-cli has not begun this long after the bot ceased to wait is lost.

Shorter than the wait for a receipt, so that a send that is tried again after it stands alone."""

PROOF_SECONDS: Final = 2.0
"""How long an answer may come later than the receipt; after that it is taken for lost."""

PASSED_OVER_SECONDS: Final = 3.0
"""How long to wait for the receipt of a send that signal-cli has passed over.

Almost certainly it was not done, and its phone had time to confirm it since it was made."""

log = structlog.get_logger()

Witness = Callable[[Evidence], None]
"""Told at once of what phones confirm; on the way of every receipt, so it is quick."""


@dataclass(eq=False, slots=True)
class _Attempt:
    """A send whose timestamp no answer has told: in flight, or ended in doubt.

    Attributes:
        chat: where to.
        began_ms: when the bot made it.
        over_ms: from when on signal-cli begins it no more; None while it is in flight.
        news: set when a phone has confirmed something.
        patience: ends the wait for its answer; None while nothing waits.
    """

    chat: ChatId
    began_ms: int
    over_ms: int | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    patience: asyncio.Timeout | None = None

    def may_be_confused_with(self, other: "_Attempt") -> bool:
        """Whether a receipt that seems to be for this attempt may be for the other."""
        if other is self or not (other.chat.is_group or other.chat == self.chat):
            return False
        return other.over_ms is None or other.over_ms + CLOCK_SKEW_MS > self.began_ms

    def give_up_the_answer(self) -> None:
        """End the wait for the answer, unless it is over."""
        if self.patience is not None and not self.patience.expired():
            self.patience.reschedule(asyncio.get_running_loop().time())


class DeliveryReceipts:
    """What people's phones confirmed, and which sends that proves.

    Args:
        clock: seconds since 1970, as signal-cli counts them.
        proof_seconds: how long an answer may come later than the receipt.

    Attributes:
        witness: told of everything that is taken.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, proof_seconds: float = PROOF_SECONDS
    ) -> None:
        self._clock = clock
        self._proof_seconds = proof_seconds
        self._started_ms = self._now_ms()
        self.witness: Witness = lambda _evidence: None
        self._confirmed: deque[tuple[str, int]] = deque(maxlen=MAX_CONFIRMED)
        self._known: dict[int, None] = {}
        self._unanswered: dict[_Attempt, None] = {}
        self._closed = False

    def take(self, receipt: Evidence) -> None:
        """Remember what a phone confirmed, as far as it is news, and what the bot did not send."""
        self.witness(receipt)
        if isinstance(receipt, SentElsewhere):
            self._know(receipt.timestamp)
            return
        new = [timestamp for timestamp in receipt.timestamps if timestamp not in self._known]
        self._confirmed.extend((receipt.person, timestamp) for timestamp in new)
        if not new:
            return
        chat = ChatId.direct(receipt.person)
        for attempt in self._unanswered:
            if attempt.chat == chat:
                attempt.news.set()
                if attempt.patience is not None:
                    later = asyncio.get_running_loop().call_later
                    later(self._proof_seconds, self._end_if_proven, attempt)

    def close(self) -> None:
        """Let nobody wait any more: no further receipt will come."""
        self._closed = True
        for attempt in self._unanswered:
            attempt.news.set()

    async def settle(self, chat: ChatId, sending: Awaitable[int], *, seconds: float) -> int:
        """Return the timestamp that a send is answered with, or else a receipt proves.

        A receipt counts while the send still waits for its answer, too.

        Args:
            chat: where to. Only in a private chat a receipt proves anything: it names a person,
                who may be in many groups.
            sending: the send.
            seconds: how long to wait for a receipt after the answer was lost.

        Raises:
            SignalTimeout: the answer was lost, and nothing proves that the message arrived.
            SignalError: the send failed for certain.
        """
        attempt = self._begin(chat)
        try:
            timestamp = await self._until_its_end(attempt, sending)
        except SignalTimeout as error:
            passed_over = isinstance(error, SignalPassedOver)
            longest = PASSED_OVER_SECONDS if passed_over else seconds
            proven = await self._find_proof(attempt, min(seconds, longest))
            if proven is None:
                if passed_over:
                    self._unanswered.pop(attempt, None)
                raise
            log.info("signal.send_proven_by_receipt")
            timestamp = proven
        except SignalError:
            self._unanswered.pop(attempt, None)
            raise
        self._unanswered.pop(attempt, None)
        self._know(timestamp)
        return timestamp

    @contextmanager
    def unnamed(self, chat: ChatId) -> Iterator[None]:
        """Count what is sent inside the block as a send whose answer tells no timestamp."""
        attempt = self._begin(chat)
        late_ms = LATE_START_MS
        try:
            yield
            late_ms = 1
        except SignalTimeout:
            raise
        except SignalError:
            self._unanswered.pop(attempt, None)
            raise
        finally:
            attempt.over_ms = self._now_ms() + late_ms

    def _begin(self, chat: ChatId) -> _Attempt:
        attempt = _Attempt(chat, began_ms=self._now_ms())
        self._unanswered[attempt] = None
        if len(self._unanswered) > MAX_UNANSWERED:
            del self._unanswered[next(iter(self._unanswered))]
        return attempt

    async def _until_its_end(self, attempt: _Attempt, sending: Awaitable[int]) -> int:
        """Await a send and note when it ended, however it did."""
        try:
            async with asyncio.timeout(None) as attempt.patience:
                return await sending
        except TimeoutError:
            raise SignalTimeout("The phone confirmed the message; its answer is lost.") from None
        finally:
            attempt.patience = None
            attempt.over_ms = self._now_ms() + LATE_START_MS

    def _end_if_proven(self, attempt: _Attempt) -> None:
        """End the wait for an answer that does not follow the receipt."""
        if attempt.patience is not None and self._proof(attempt) is not None:
            attempt.give_up_the_answer()

    def _know(self, timestamp: int) -> None:
        """Remember a timestamp that proves nothing; a receipt asks for up to 500 of them."""
        self._known[timestamp] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

    async def _find_proof(self, attempt: _Attempt, seconds: float) -> int | None:
        """Wait for proof; what is found must be made known before anything else runs."""
        if attempt.chat.is_group:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._proof(attempt) is None and not self._closed:
                    attempt.news.clear()
                    await attempt.news.wait()
        return self._proof(attempt)

    def _proof(self, attempt: _Attempt) -> int | None:
        """The latest timestamp that may be the attempt's, if one of them must be."""
        # Sends of an earlier process may be confirmed late; they are not this process's.
        oldest = max(attempt.began_ms - CLOCK_SKEW_MS, self._started_ms)
        found = {
            timestamp
            for person, timestamp in self._confirmed
            if person == attempt.chat.value and timestamp >= oldest and timestamp not in self._known
        }
        others = [
            other.over_ms for other in self._unanswered if attempt.may_be_confused_with(other)
        ]
        # A timestamp from after the end of another send is not that one's.
        for end in (0, *filter(None, others)):
            later = [timestamp for timestamp in found if timestamp >= end]
            if len(later) > sum(over_ms is None or over_ms > end for over_ms in others):
                return max(later)
        return None
