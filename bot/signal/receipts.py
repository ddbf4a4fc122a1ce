"""Use receipts as evidence for sends with an unknown result.

Signal has no key that makes a repeated send harmless. A reply may get lost, the bot may be killed,
and an error may follow a delivery: in each case the bot does not know whether the message arrived.
The recipient's phone does. Its receipt names the message by its timestamp, which the bot did not
learn.

A receipt settles a send if exactly one unknown timestamp fits this send and no other
one. This works because signal-cli gives each message of the account its own timestamp, and a phone
confirms only messages to its owner. Phones confirm reactions and deletions too, so these count as
sends. In all other cases the send stays in doubt, and the bot sends again.

If the account's owner writes from another device, a copy of that message arrives first, so its
timestamp is known and proves nothing.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import structlog

from bot.observability.metrics import SEND_SECONDS, SENDS
from bot.signal.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUnclear,
    SignalUntrusted,
)
from bot.signal.events import Receipt
from conversation_store.models import ChatId
from conversation_store.outbox import KEPT_MS, LATE_START_MS

MAX_KNOWN: Final = 10_000
MAX_ATTEMPTS: Final = 2_000
TIDY_ATTEMPTS: Final = 100
"""Above this number, forget ended requests that do not overlap with an open one."""
MAX_CONFIRMED: Final = 2_000
MAX_CONFIRMED_BY_ONE: Final = 50
"""Unknown timestamps in memory, in all and of each person, because people can forge receipts."""

CLOCK_SKEW_MS: Final = 2_000
"""How far the clock of signal-cli may be behind the bot's."""

AHEAD_MS: Final = 1_000
"""How far the clock of signal-cli may be ahead of the bot's when a send in doubt has ended."""

log = structlog.get_logger()

_OUTCOMES: Final[dict[type[SignalError], str]] = {
    SignalUnavailable: "unavailable",
    SignalPassedOver: "passed_over",
    SignalRateLimited: "rate_limited",
    SignalUnclear: "unclear",
    SignalTimeout: "timeout",
    SignalUntrusted: "untrusted",
    SignalRejected: "rejected",
}


@dataclass(eq=False, slots=True)
class Attempt:
    """A send whose timestamp is unknown: on its way, or in doubt.

    Attributes:
        since: the earliest timestamp that it can have, in ms.
        until: its timestamp is earlier than this; None while it is on its way.
        row: its message in the outbox, if it has one.
        people: ACIs of its recipients. While they are unknown, no receipt proves it.
        is_done: it has succeeded, but its answer had no timestamp; or an earlier process may have
            sent it, and nobody waits for it.
        is_message: it is not a reaction, a deletion or the end of a poll, of which no copy stays.
        is_unwanted: nobody misses its message; if it has arrived, it is deleted for everyone.
        news: set when a receipt may settle it.
        begun_ms: when it was begun, in ms; `began` is the same by the monotonic clock.
    """

    chat: ChatId
    since: int
    until: int | None = None
    _: KW_ONLY
    row: int | None = None
    people: frozenset[str] | None = None
    is_done: bool = False
    is_message: bool = True
    is_unwanted: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)
    begun_ms: int = 0
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.chat.is_group and not self.chat.value.startswith("+"):
            self.people = frozenset({self.chat.value})

    @property
    def is_exact(self) -> bool:
        """Whether an error named its timestamp."""
        return self.until == self.since + 1

    def may_have(self, timestamp: int, people: Iterable[str]) -> bool:
        """Whether the send may have this timestamp, which these people's phones confirmed."""
        # While it is on its way, the clock may be turned back, so the time of day ends nothing.
        in_time = self.since <= timestamp and (self.until is None or timestamp < self.until)
        return in_time and (self.people is None or self.people.issuperset(people))


class DeliveryReceipts:
    """Sends with unknown timestamps, and the receipts that may settle them.

    Attributes:
        keep: called with each timestamp that may matter after a crash, and with the person who
            confirmed it, or None if the owner sent it from another device.
        known: returns the given timestamps that belong to stored messages.
        news: set when a receipt may settle a send in doubt.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._started_ms = self._now_ms()
        self.keep: Callable[[int, str | None], None] = lambda _timestamp, _person: None
        self.known: Callable[[Sequence[int]], Awaitable[Iterable[int]]] = _none_is_known
        self.news = asyncio.Event()
        self._attempts: dict[Attempt, None] = {}
        self._confirmed: dict[int, set[str]] = {}
        self._by_person: Counter[str] = Counter()
        self._known: dict[int, set[str]] = {}
        self._resent: dict[Attempt, int] = {}
        self._seen: dict[int, set[str] | None] = {}

    # Receipts

    def take(self, receipt: Receipt) -> None:
        """Keep the timestamps of a receipt that may matter, or of a message from another device."""
        person = receipt.person
        theirs = [one for one in self._attempts if one.people is None or person in one.people]
        for timestamp in sorted(receipt.timestamps)[-MAX_CONFIRMED_BY_ONE:]:
            if person is None:
                self.know(timestamp)
                self.keep(timestamp, None)
            elif theirs and self.confirm(timestamp, person, theirs):
                self.keep(timestamp, person)

    def confirm(self, timestamp: int, person: str, theirs: Sequence[Attempt]) -> bool:
        """Remember a receipt; return whether it says something new about these sends."""
        seen = self._seen.get(timestamp)
        if seen is not None:
            is_new = person not in seen
            seen.add(person)
            self.news.set()
            return is_new
        fitting = [one for one in theirs if one.may_have(timestamp, (person,))]
        earliest = timestamp - CLOCK_SKEW_MS  # otherwise it is of the future
        fitting = [one for one in fitting if earliest < (one.until or self._latest_ms(one))]
        people = self._confirmed.get(timestamp, set())
        if timestamp in self._known:  # the store may not have noted yet that it was sent again
            self._known[timestamp].add(person)
            return False
        if not fitting or person in people:
            return False
        is_too_much = self._by_person[person] >= MAX_CONFIRMED_BY_ONE
        if is_too_much or len(self._confirmed) >= MAX_CONFIRMED:
            return False
        self._by_person[person] += 1
        self._confirmed[timestamp] = people | {person}
        self.news.set()
        for attempt in fitting:
            attempt.news.set()
        return True

    def know(self, timestamp: int) -> None:
        """Remember that a timestamp belongs to a known message, so that it proves nothing."""
        people = self._confirmed.pop(timestamp, set())
        for person in people:
            self._by_person[person] -= 1
            if not self._by_person[person]:
                del self._by_person[person]
        self._known[timestamp] = people | self._known.get(timestamp, set())
        self._look_again()
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    # Sends in doubt

    def add(self, attempt: Attempt) -> None:
        """Add a send that may have been done."""
        self._attempts[attempt] = None
        if len(self._attempts) > TIDY_ATTEMPTS:
            earliest = min(one.since for one in self._attempts if not one.is_done)
            kept = (one for one in self._attempts if not one.is_done or earliest < (one.until or 0))
            self._attempts = dict.fromkeys(kept)
        if len(self._attempts) > MAX_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]

    def drop(self, attempt: Attempt) -> None:
        """Forget a send: its result is known."""
        self._attempts.pop(attempt, None)
        kept = self._resent.pop(attempt, None)
        if kept is not None and kept not in self._resent.values():
            del self._seen[kept]
        self._look_again()
        if not self._attempts:
            self._confirmed.clear()
            self._by_person.clear()

    def abandon(self, attempt: Attempt) -> None:
        """Note that nobody wants the message of a send in doubt any more."""
        attempt.is_unwanted = True
        self.news.set()  # the members of its group may be unknown

    def _forget_old(self) -> None:
        """Forget the sends of ended turns that are too old to be deleted for everyone."""
        too_old = self._now_ms() - KEPT_MS
        for attempt in [one for one in self._attempts if one.is_unwanted]:
            if attempt.until is not None and attempt.until < too_old:
                self.drop(attempt)

    def _look_again(self) -> None:
        """Wake up waits for a proof: with one request less, a receipt may fit only one send."""
        for attempt in self._attempts:
            attempt.news.set()
        if self._confirmed:
            self.news.set()

    def sent_again(self, attempt: Attempt, timestamp: int, *, is_edit: bool) -> None:
        """Note that the message of a send in doubt was sent again, with this timestamp."""
        self._resent[attempt] = timestamp
        seen = self._known.get(timestamp, set())
        self._seen.setdefault(timestamp, None if is_edit else {*seen})
        self.news.set()

    async def copies(self) -> list[tuple[Attempt, int]]:
        """Return the sends whose message is not wanted or arrived twice, and what to delete.

        A phone has confirmed the timestamp. Each send that it fits was sent again and stands, or
        nobody wants its message, so nothing is lost, whichever it belongs to. If it may belong to
        several chats, each of them has an entry. An edit arrives once, because phones ignore its
        copy.
        """
        self._forget_old()
        await self._sort_out_known()
        found = []
        for timestamp, people in self._confirmed.items():
            fitting = [one for one in self._attempts if one.may_have(timestamp, people)]
            fitting = [one for one in fitting if one.is_exact] or fitting
            sends = [one for one in fitting if one.is_message and not one.is_done]
            if any(one.until is None or self._is_change(one, timestamp) for one in fitting):
                continue  # the reply may name it soon, or it is a deletion itself
            if sends and all(self._stands(one, people, len(sends)) for one in sends):
                first_of_each_chat = {one.chat: one for one in reversed(sends)}
                found += [(one, timestamp) for one in first_of_each_chat.values()]
        return found

    def _is_change(self, attempt: Attempt, timestamp: int) -> bool:
        """Whether a timestamp seems to be that of a change which this process has made."""
        is_change = attempt.is_done and not attempt.is_message
        return is_change and 0 < attempt.begun_ms <= timestamp

    def _stands(self, attempt: Attempt, people: set[str], fitting: int) -> bool:
        """Whether nothing is lost with a send: a phone of these people has a later one.

        Args:
            fitting: number of sends to which the timestamp in question may belong.
        """
        kept = self._resent.get(attempt)
        if attempt.people is None and not attempt.is_exact:
            return False
        if kept is None or attempt.is_unwanted:
            return attempt.is_unwanted
        seen = self._seen[kept]
        return fitting == 1 if seen is None else not seen.isdisjoint(people)

    @property
    def in_unknown_groups(self) -> list[Attempt]:
        """The sends in doubt to groups whose members are unknown."""
        open_ones = (one for one in self._attempts if one.until is not None)
        return [one for one in open_ones if one.chat.is_group and one.people is None]

    def proof(self, attempt: Attempt) -> int | None:
        """Return the timestamp of a send if exactly one confirmed timestamp can be its own."""
        found = self._found(attempt)
        return found[0] if len(found) == 1 else None

    def _found(self, attempt: Attempt) -> list[int]:
        """Return the confirmed timestamps that only this send can have."""
        if attempt.people is None and not attempt.is_exact:
            return []
        others = self._others(attempt)

        def is_only_its_own(timestamp: int, people: set[str]) -> bool:
            shared = any(one.may_have(timestamp, people) for one in others)
            return attempt.may_have(timestamp, people) and (attempt.is_exact or not shared)

        return [at for at, people in self._confirmed.items() if is_only_its_own(at, people)]

    def _others(self, attempt: Attempt) -> list[Attempt]:
        """Return the sends that must not fit a receipt, if it is to prove this send."""
        others = [one for one in self._attempts if one is not attempt]
        return [one for one in others if one.row is None or one.row != attempt.row]

    async def wait_for_proof(self, attempts: Sequence[Attempt], seconds: float) -> int | None:
        """Wait for a receipt that settles one of several sends of a message; None without one."""
        news = asyncio.Event()
        for attempt in attempts:
            attempt.news = news
        clock = asyncio.get_running_loop().time
        ends_at = clock() + seconds
        while True:
            news.clear()
            await self._sort_out_known()
            found = self._proof_of_one(attempts)
            if found is not None or clock() >= ends_at:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout_at(ends_at):
                    await news.wait()

    def _proof_of_one(self, attempts: Sequence[Attempt]) -> int | None:
        """Return the timestamp that proves one of several sends of a message."""
        found = next(filter(None, map(self.proof, attempts)), None)
        fitting = {timestamp for one in attempts for timestamp in self._found(one)}
        if found is None and len(fitting) <= len(attempts):  # all of them are copies of the message
            found = min(fitting, default=None)
        return found

    async def _sort_out_known(self) -> None:
        asked = set[int]()
        while fresh := [timestamp for timestamp in self._confirmed if timestamp not in asked]:
            asked.update(fresh)  # further receipts may come while the store looks
            for timestamp in await self.known(fresh):
                self.know(timestamp)

    # Sends on their way

    async def settle(self, chat: ChatId, sending: Awaitable[int]) -> int:
        """Await the answer to a send, count the outcome, and return the message's timestamp.

        Raises:
            SignalTimeout: the result is unknown; `sending` of the error is the send in doubt.
            SignalError: the send failed for certain.
        """
        began = time.monotonic()
        try:
            timestamp = await self.timestamp_of(chat, sending, is_message=True)
        except SignalError as error:
            names = (name for kind, name in _OUTCOMES.items() if isinstance(error, kind))
            SENDS.labels(next(names, "failed")).inc()
            raise
        SENDS.labels("sent").inc()
        SEND_SECONDS.observe(time.monotonic() - began)
        return timestamp

    async def timestamp_of(
        self, chat: ChatId, sending: Awaitable[int], *, is_message: bool = False
    ) -> int:
        """Await the answer to a request, without counting."""
        with self.unnamed(chat, is_message=is_message) as attempt:
            timestamp = await sending
        self.drop(attempt)
        self.know(timestamp)
        return timestamp

    @contextmanager
    def unnamed(self, chat: ChatId, *, is_message: bool = False) -> Iterator[Attempt]:
        """Treat a request inside the block as a send whose answer has no timestamp."""
        # Phones may confirm sends of an earlier process late. The clock may have been turned back.
        now_ms = self._now_ms()
        since = max(min(self._started_ms, now_ms), now_ms - CLOCK_SKEW_MS)
        attempt = Attempt(chat, since, is_message=is_message, begun_ms=now_ms)
        self.add(attempt)

        try:
            yield attempt
            attempt.until, attempt.is_done = self._latest_ms(attempt) + 1, True
        except SignalTimeout as error:
            if error.timestamp is not None:
                attempt.since, attempt.until = error.timestamp, error.timestamp + 1
            elif error.answered:
                attempt.until = self._latest_ms(attempt) + AHEAD_MS
            error.sending = attempt
            raise
        except SignalError:
            self.drop(attempt)
            raise
        finally:
            if attempt.until is None:
                attempt.until = self._latest_ms(attempt) + LATE_START_MS

    def _latest_ms(self, attempt: Attempt) -> int:
        """Return the time by the clock as it is now, or as it was before it was turned back."""
        passed_ms = int((time.monotonic() - attempt.began) * 1_000)
        return max(self._now_ms(), attempt.begun_ms + passed_ms)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)


async def _none_is_known(_: Sequence[int]) -> Iterable[int]:
    return ()
