"""Answers that were on their way when the last process ended: sent, or not?

Signal accepts a message before signal-cli tells so. A process that is killed in between leaves an
answer that waits in the store and yet stands on the phones. At a start such answers are in doubt,
and phones settle it: their receipts waited at Signal, and each names a message by the timestamp
that the bot never learned. `attribution` says which answers the receipts prove. These are marked
and not sent again; the others are, after a bound: a copy is better than a loss.

When a phone that was away confirms both copies later, the unknown one is deleted for everyone. The
other one stays, because the store knows its timestamp, and so do edits and reactions. Of two equal
edits people see one, so none is deleted; the row then takes the timestamp of the first, because
phones ignore an edit of a version that they have replaced already.

A receipt comes once, and this process may be killed as well, so what matters is stored.
"""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from bot.dispatch.outgoing.attribution import Candidate, proven
from bot.dispatch.outgoing.outbox import Outbox
from bot.errors import SignalError
from bot.messaging.events import Evidence, SentElsewhere
from bot.messaging.messenger import Messenger
from bot.messaging.receipts import CLOCK_SKEW_MS
from conversation_store.models import ChatId, Interrupted, OutgoingMessage, Resent
from conversation_store.sections.doubts import ELSEWHERE
from conversation_store.store import ConversationStore

log = structlog.get_logger()

PROOF_SECONDS: Final = 3.0
"""How long after the connection's start receipts may come until an answer is sent again."""

QUIET_SECONDS: Final = 0.2
"""Nothing is concluded while receipts are still coming in: a later one may tell more."""

POLL_SECONDS: Final = 0.1
"""How often it is looked whether there is a connection."""

RETRY_SECONDS: Final = 60.0
"""A copy that could not be deleted is tried again after so long."""

REACTION_MS: Final = 5_000
"""A reaction to a message is sent so soon after it, or not at all."""

MAX_CONFIRMED: Final = 20_000
MAX_CONFIRMED_BY_ONE: Final = 200
"""Receipts that are kept, in all and of one person, who may claim to have got anything."""

EARLY_SECONDS: Final = 60.0
MAX_EARLY_PEOPLE: Final = 1_000
"""In so many seconds, receipts of so many people are kept that come before the reply to a send."""

_ACI: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(eq=False, slots=True)
class _Open:
    """A message that waits for its proof; `proof` is its timestamp, or None without any."""

    sending: Interrupted
    proof: asyncio.Future[int | None] = field(default_factory=asyncio.Future)


class Doubts:
    """Settles what a start does not know. `run` has to run beside.

    Args:
        channel: the Signal side.
        store: what earlier processes left.
        outbox: sends what is not proven.
        reacts: whether the bot reacts to messages at once; phones confirm that, too.
        clock: seconds since 1970, as signal-cli counts them.
    """

    def __init__(
        self,
        channel: Messenger,
        store: ConversationStore,
        outbox: Outbox,
        *,
        reacts: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._channel = channel
        self._store = store
        self._outbox = outbox
        self._reacts = reacts
        self._clock = clock
        self._open: dict[int, _Open] = {}
        self._others: tuple[Interrupted, ...] = ()
        self._of_turns: tuple[Interrupted, ...] = ()
        self._resent: tuple[Resent, ...] = ()
        self._being_resent = 0
        self._started_ms = 0
        self._window = (0, 0)
        self._confirmed: defaultdict[int, set[str]] = defaultdict(set)
        self._receipts = 0
        self._by_person: Counter[str] = Counter()
        self._early: Counter[str] = Counter()
        self._early_since = time.monotonic()
        self._explained: set[int] = set()
        self._members: dict[str, frozenset[str] | None] = {}
        self._news = asyncio.Event()

    async def resume(self) -> None:
        """Load what is in doubt; to be awaited before anything is sent."""
        reaction_ms = REACTION_MS if self._reacts() else None
        self._started_ms = self._now_ms()
        found = await self._store.doubts.load(self._started_ms, reaction_ms=reaction_ms)
        self._open = {one.id: _Open(one) for one in found.waiting if one.id is not None}
        self._others = found.others
        self._of_turns = found.of_turns
        self._resent = found.resent
        sendings = [*found.waiting, *(one.sending for one in found.resent)]
        if sendings:
            since = min(one.since for one in sendings)
            self._window = since, max(one.until for one in sendings)
        for timestamp, person in found.confirmed:
            self._note(timestamp, person)

    def take(self, evidence: Evidence) -> None:
        """Keep what a phone, or the account's owner, tells about a timestamp in doubt.

        A phone that confirms an answer that this process was told of costs a few comparisons.
        """
        if isinstance(evidence, SentElsewhere):
            # Kept whatever waits: a phone may confirm it after the next start.
            self._store.doubts.confirm([(evidence.timestamp, ELSEWHERE)])
            if self._matters(evidence.timestamp) and self._note(evidence.timestamp, ELSEWHERE):
                self._news.set()
            return
        person = evidence.person
        new = [at for at in evidence.timestamps if self._matters(at) and self._note(at, person)]
        # The next process would not get a receipt that came before the reply to its send.
        early = [at for at in evidence.timestamps if self._is_early(at, person)]
        if new or early:
            self._store.doubts.confirm([(at, person) for at in (*new, *early)])
        if new:
            self._news.set()

    async def deliver(self, part: OutgoingMessage) -> None:
        """Send what an earlier process left, unless a phone proves that it was sent."""
        doubt = self._open.get(part.id)
        if doubt is None:
            await self._outbox.deliver((part,))
            return
        proof = await doubt.proof
        if proof is None:
            await self._send_again(part, doubt.sending)
        else:
            await self._store.outbox.mark_proven(part, doubt.sending, proof)
            log.info("outbox.proven_by_receipt")
        del self._open[part.id]

    async def run(self) -> None:
        """Settle what is in doubt, then find copies, until cancelled; raises StoreError."""
        await self._settle()
        while True:
            await self._until_quiet()
            await self._find_copies()
            await self._something_new()

    # What waits

    async def _settle(self) -> None:
        """Let every message in doubt have its proof, or know that there is none in time."""
        if not self._open:
            return
        await self._until_connected()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_left()):
                await self._learn_members()
                while any(not doubt.proof.done() for doubt in self._open.values()):
                    await self._until_quiet()
                    await self._conclude()
                    await self._news.wait()
        await self._conclude()
        for doubt in self._open.values():
            if not doubt.proof.done():
                doubt.proof.set_result(None)

    async def _until_connected(self) -> None:
        while True:
            if self._channel.connected:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _send_again(self, part: OutgoingMessage, sending: Interrupted) -> None:
        log.info("outbox.sent_again")
        # From here on any receipt may be that of the new copy: phones may be faster than its reply.
        self._being_resent += 1
        try:
            await self._store.doubts.expect_copy(sending)
            await self._outbox.deliver((part,))
            self._resent = await self._store.doubts.resent(self._now_ms())
        finally:
            self._being_resent -= 1
        self._news.set()

    def _seconds_left(self) -> float:
        began = self._channel.connected_since
        return PROOF_SECONDS - (0.0 if began is None else time.monotonic() - began)

    async def _until_quiet(self) -> None:
        with suppress(TimeoutError):
            while True:
                self._news.clear()
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._news.wait()

    async def _conclude(self) -> None:
        """Settle what the receipts that came until now prove."""
        waiting = [doubt for doubt in self._open.values() if not doubt.proof.done()]
        ids = {doubt.sending.id for doubt in waiting}
        copies = {one.sending.id: replace(one.sending, times=one.copies) for one in self._resent}
        candidates = [
            self._candidate(doubt.sending, earlier=copies.get(doubt.sending.id))
            for doubt in waiting
        ]
        copied = (one for id_, one in copies.items() if id_ not in ids)
        others = [self._candidate(one) for one in (*self._others, *copied)]
        unknown = await self._unknown()
        found = proven(candidates, unknown, others)
        sent_before = {one.sending.id for one in self._resent}
        for number, doubt in enumerate(waiting):
            # Whose people are not known, a receipt of anybody's would prove.
            if number not in found or candidates[number].people is None or doubt.proof.done():
                continue
            proof = found[number]
            fitting = (one for one in (*candidates, *others) if one.may_be(proof, unknown[proof]))
            # Of several copies all are deleted but the one that is taken to be the message.
            if doubt.sending.id in sent_before and len(list(fitting)) > 1:
                continue
            self._explained.add(proof)
            doubt.proof.set_result(proof)

    # Copies

    async def _find_copies(self) -> None:
        """Delete the copies that phones confirmed beside the messages that they are copies of."""
        if not self._resent:
            return
        self._resent = await self._store.doubts.resent(self._now_ms())
        await self._learn_members()
        for timestamp, people in sorted((await self._unknown()).items()):
            message = self._copied(timestamp, people)
            if message is None:
                continue
            if await self._remove(message, timestamp):
                self._explained.add(timestamp)
                self._resent = await self._store.doubts.resent(self._now_ms())

    def _copied(self, timestamp: int, people: set[str]) -> Resent | None:
        """Return the message that a timestamp must be a copy of, if people have both.

        What one person alone confirms is taken for private. Were it a copy of a message to a
        group, it would stay; nothing is lost, because the copy that counts stays in any case.
        """
        may_be = [
            one for one in self._resent if self._candidate(one.sending).may_be(timestamp, people)
        ]
        private = [one for one in may_be if not one.sending.chat.is_group]
        may_be = private or may_be
        if any(one.timestamp is None for one in may_be):
            return None  # It may be the only one that arrived.
        chats = {one.sending.chat for one in may_be}
        of_turns = (self._candidate(one) for one in self._of_turns if one.chat in chats)
        if any(one.may_be(timestamp, people) for one in of_turns):
            return None  # It may be a question, or a sign of progress, which is no copy.
        if len(chats) != 1:
            return None
        if any(one.is_edit for one in may_be):
            return may_be[0] if len(may_be) == 1 else None
        both = (one for one in may_be if people & self._confirmed.get(one.timestamp or 0, set()))
        return next(both, None)

    async def _remove(self, message: Resent, copy: int) -> bool:
        """Let people see one of two copies; False where that has to be tried again."""
        part, standing = message.sending.id, message.timestamp
        if part is None or standing is None:
            return False
        if message.is_edit:
            await self._store.doubts.copy_found(part, copy=copy, standing=copy)
            return True
        now_ms = self._now_ms()
        since_ms = max(self._started_ms, now_ms - CLOCK_SKEW_MS)
        await self._store.doubts.expect_deletion(part, since_ms=since_ms, now_ms=now_ms)
        try:
            await self._channel.delete(message.sending.chat, copy)
        except SignalError as error:
            log.warning("outbox.copy_stays", reason=type(error).__name__)
            return False
        await self._store.doubts.copy_found(part, copy=copy, standing=standing)
        log.info("outbox.copy_deleted")
        return True

    async def _something_new(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS if self._resent else None):
                await self._news.wait()

    # Receipts

    def _matters(self, timestamp: int) -> bool:
        """Whether a timestamp may be that of a message in doubt, or of its later copy."""
        if self._being_resent:
            return True
        since, until = self._window
        if since <= timestamp < until and (self._open or self._resent):
            return True
        return any(one.timestamp == timestamp for one in self._resent)

    def _is_early(self, timestamp: int, person: str) -> bool:
        """Whether a receipt came before the reply to its send; a person may claim that so often."""
        if not self._outbox.may_be_on_its_way(timestamp, person):
            return False
        now = time.monotonic()
        if now - self._early_since > EARLY_SECONDS:
            self._early.clear()
            self._early_since = now
        if person not in self._early and len(self._early) >= MAX_EARLY_PEOPLE:
            return False
        self._early[person] += 1
        return self._early[person] <= MAX_CONFIRMED_BY_ONE

    def _note(self, timestamp: int, person: str) -> bool:
        """Remember a receipt, and return whether that is news.

        What the owner sent is never too much: without it a receipt would prove what is not so.
        """
        if person in self._confirmed.get(timestamp, ()):
            return False
        if person != ELSEWHERE:
            is_too_much = self._by_person[person] >= MAX_CONFIRMED_BY_ONE
            if is_too_much or self._receipts >= MAX_CONFIRMED:
                return False
            self._by_person[person] += 1
            self._receipts += 1
        self._confirmed[timestamp].add(person)
        return True

    async def _unknown(self) -> dict[int, set[str]]:
        """Return the confirmed timestamps that no stored message has."""
        asked = [one for one in self._confirmed if one not in self._explained]
        known = await self._store.doubts.known(asked)
        return {
            timestamp: people
            for timestamp in asked
            if timestamp not in known and ELSEWHERE not in (people := self._confirmed[timestamp])
        }

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)

    # People

    def _candidate(self, sending: Interrupted, *, earlier: Interrupted | None = None) -> Candidate:
        """Return a message as receipts see it, with the copies that earlier processes sent."""
        chat = sending.chat
        if chat.is_group:
            people = self._members.get(chat.value)
        else:
            people = frozenset({chat.value}) if _ACI.fullmatch(chat.value) else None
        times = sending.times + (0 if earlier is None else earlier.times)
        return Candidate(people, sending.since, sending.until, times)

    async def _learn_members(self) -> None:
        """Ask who is in the groups that matter."""
        sendings = (doubt.sending for doubt in self._open.values())
        resent = (one.sending for one in self._resent)
        for chat in _groups((*sendings, *self._others, *resent)):
            if chat.value in self._members:
                continue
            try:
                group = await self._channel.group(chat)
            except SignalError as error:
                log.info("outbox.members_unknown", reason=type(error).__name__)
                continue
            self._members[chat.value] = None if group is None else group.members


def _groups(sendings: Iterable[Interrupted]) -> list[ChatId]:
    chats = (chat for chat in sorted({one.chat for one in sendings}))
    return [chat for chat in chats if chat.is_group]
