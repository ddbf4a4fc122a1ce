"""Send stored answers in order, with retries; then mark each as sent or given up.

Each part is on disk before it comes here, and is sent only if it is still there. Without a
connection, it waits without a limit. The worker of the chat waits here, so the messages of a chat
leave in their order. Messages to a person with a new, untrusted key are put aside until the key is
trusted.

A send with an unknown result is a doubt. The bot waits for a receipt that settles it, and otherwise
sends again, at most three times in all. Before it repeats a send, it waits until Signal can be
reached, so an outage uses up no copies. Signal may limit a chat for an hour, also after it has
delivered the message, so the pauses grow. Other chats go on until Signal limits them as well.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, Final

import structlog

from bot.backoff import Backoff, set_within
from bot.chat.access import Access
from bot.language.languages import Languages
from bot.observability import metrics
from bot.signal.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.signal.messenger import Messenger, Poll
from bot.signal.receipts import CLOCK_SKEW_MS, Attempt
from conversation_store.models import Attachment, ChatId, OutgoingMessage, Quote, StyleRange
from conversation_store.outbox import ELSEWHERE, LATE_START_MS, Doubt
from conversation_store.store import ConversationStore

log = structlog.get_logger()

RECEIPT_SECONDS: Final = 15.0
"""Time for the receipt of a send with an unknown result; longer than a reconnect."""

PASSED_OVER_SECONDS: Final = 3.0
"""Time for the receipt of a send that signal-cli passed over; it almost certainly never ran."""

PROOF_SECONDS: Final = 3.0
"""Time after the connection begins to wait for receipts of sends by earlier processes, and for
receipts after an outage."""

MEMBERS_SECONDS: Final = 15.0
"""Pause after Signal did not tell the members of a group."""

MAX_COPIES: Final = 3
"""A message is sent at most so often if no phone confirms it: each send may have arrived."""

PAUSES: Final = (RECEIPT_SECONDS, 300.0)
"""Time for the receipt of the first and of the second send in doubt; the last one gets
`RECEIPT_SECONDS`."""

LIMITED_PAUSES: Final = (120.0, 3_600.0)
"""The same after a rate limit, which may last for an hour."""


RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)
"""Pauses after a send that certainly failed, and between two looks whether Signal answers."""

RECONNECT_POLL_SECONDS: Final = 0.25
"""Interval of checks for a connection."""


@dataclass(eq=False, repr=False, slots=True)
class Doubts:
    """Sends with an unknown result, of this process and of earlier ones.

    A doubt is a send that may have arrived: its reply was lost, an error came that may follow a
    delivery, or the process was killed before the bot learned the timestamp. A receipt that fits
    exactly one doubt settles it, see `bot.signal.receipts`. Without a receipt the bot sends again,
    because a copy is better than a loss. If a phone confirms both copies later, the bot deletes the
    copy that the store does not know.

    A receipt comes only once, and this process may be killed too. So the store keeps the doubts,
    and the receipts that may settle them.
    """

    messenger: Messenger
    store: ConversationStore
    _of_waiting: defaultdict[int, list[Attempt]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )
    _given_up: dict[int, bool] = field(default_factory=dict, init=False)  # row: it is an edit
    _orphans: list[tuple[ChatId, int]] = field(default_factory=list, init=False)
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
            if doubt.is_change or reacts:
                attempts.append(Attempt(doubt.chat, doubt.since, doubt.until, is_done=True))
            if not doubt.is_change:
                attempts.append(self._taken_up(doubt))
        for attempt in attempts:
            receipts.add(attempt)
        for timestamp in await self.store.doubts.known([timestamp for timestamp, _ in confirmed]):
            receipts.know(timestamp)
        for timestamp, person in confirmed:
            receipts.confirm(timestamp, person, attempts)

    def _taken_up(self, doubt: Doubt) -> Attempt:
        """Return a send in doubt of an earlier process, and note what was to become of it."""
        attempt = Attempt(doubt.chat, doubt.since, doubt.until, row=doubt.row)
        if doubt.timestamp is not None:
            self.messenger.receipts.sent_again(attempt, doubt.timestamp, is_edit=doubt.is_edit)
        elif doubt.row is None or doubt.is_withdrawn:
            self.messenger.receipts.abandon(attempt)  # its turn asks and shows progress anew
        else:
            self._of_waiting[doubt.row].append(attempt)
            if doubt.is_given_up:
                self._given_up[doubt.row] = doubt.is_edit
        return attempt

    def is_in_doubt(self, part: OutgoingMessage) -> bool:
        """Whether a message may have been sent already."""
        return bool(self._of_waiting.get(part.id))

    async def earlier_proof(self, part: OutgoingMessage) -> int | None:
        """Return the timestamp of a message if a receipt proves that an earlier process sent it.

        A restart does not shorten the pause after a send in doubt.
        """
        began = self.messenger.connected_since
        passed = 0.0 if began is None else time.monotonic() - began
        seconds = max(PROOF_SECONDS - passed, self._left_of_pause(part))
        return await self._proof(self._of_waiting[part.id], seconds)

    def _left_of_pause(self, part: OutgoingMessage) -> float:
        now = int(time.time() * 1_000)
        ended = [at for one in self._of_waiting[part.id] if (at := one.until or now) < now]
        pause = PAUSES[min(part.attempts, len(PAUSES)) - 1] if part.attempts and ended else 0.0
        return pause - min(pause, (now - max(ended, default=now)) / 1_000)

    async def settle(
        self, chat: ChatId, error: SignalTimeout, copies: int, *, row: int | None = None
    ) -> int | None:
        """Wait for a receipt that proves a send in doubt; return its timestamp, or None.

        If the message may be sent again, return when Signal can be reached.

        Args:
            copies: number of sends of the message in doubt, with this one.
            row: the message in the outbox, if it has one. Any of its sends counts.
        """
        attempt, attempts = error.sending, [] if row is None else self._of_waiting[row]
        if isinstance(attempt, Attempt) and attempt.until is not None:
            attempt.row = row
            attempts.append(attempt)
            self.store.doubts.note(Doubt(row, chat, attempt.since, attempt.until))
        passed_over = isinstance(error, SignalPassedOver)
        timestamp = await self._proof(attempts, pause_after(copies, error))
        if timestamp is None and copies < MAX_COPIES and not passed_over and await self._outage():
            timestamp = await self._proof(attempts, PROOF_SECONDS)
        if attempt in attempts and (passed_over or (row is None and timestamp is not None)):
            attempts.remove(attempt)
            self.messenger.receipts.drop(attempt)
        return timestamp

    def sent(self, part: OutgoingMessage, timestamp: int, *, by_receipt: bool) -> None:
        """Note that a message was sent; its sends still in doubt may be second copies.

        Args:
            by_receipt: the timestamp is that of a send in doubt, not of a later one.
        """
        is_edit = part.replaces is not None
        self._settle_row(part.id, timestamp, is_edit=is_edit, by_receipt=by_receipt)

    def gave_up(self, part: OutgoingMessage) -> None:
        """Note that a message is sent no more; a late receipt still settles it."""
        if self.is_in_doubt(part):
            self._given_up[part.id] = part.replaces is not None

    def _settle_row(self, row: int, timestamp: int, *, is_edit: bool, by_receipt: bool) -> None:
        receipts = self.messenger.receipts
        attempts = self._of_waiting.pop(row, [])
        fitting = [one for one in attempts if one.may_have(timestamp, ())]
        if by_receipt and fitting:  # the store settles the same one
            settled = max(fitting, key=lambda one: one.since)
            attempts.remove(settled)
            receipts.drop(settled)
        for attempt in attempts:
            receipts.sent_again(attempt, timestamp, is_edit=is_edit)

    async def run(self, queue: Callable[[OutgoingMessage], None]) -> None:
        """Queue deletions of second copies, until cancelled; raises StoreError."""
        receipts, all_known = self.messenger.receipts, True
        while True:
            await set_within(receipts.news, None if all_known else MEMBERS_SECONDS)
            receipts.news.clear()
            all_known = await self._learn_members()
            await self._settle_given_up()
            withdrawn, self._orphans = self._orphans, []
            gone: list[tuple[int | None, ChatId, int]] = [(None, *one) for one in withdrawn]
            for attempt, copy in await receipts.copies():
                receipts.know(copy)
                row = None if attempt.is_unwanted else attempt.row
                gone.append((row, attempt.chat, copy))
            for row, chat, timestamp in gone:
                removal = await self.store.doubts.remove_copy(row, chat, timestamp)
                if removal is not None:
                    log.info("outbox.copy_deleted")
                    queue(removal)

    async def _settle_given_up(self) -> None:
        for row, is_edit in [*self._given_up.items()]:
            receipts = self.messenger.receipts
            timestamp = await receipts.wait_for_proof(self._of_waiting[row], 0.0)
            if timestamp is not None:
                log.info("outbox.proven_by_receipt")
                del self._given_up[row]
                receipts.know(timestamp)
                await self.store.doubts.settle_given_up(row, timestamp)
                self._settle_row(row, timestamp, is_edit=is_edit, by_receipt=True)

    # Messages without a row in the outbox: progress, questions, polls. Phones confirm them as well,
    # so the store notes their timestamps. Otherwise, after a crash, such a receipt could seem to
    # confirm an answer. Nothing here waits for the disk.

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        styles: Sequence[StyleRange] = (),
        quote: Quote | None = None,
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> int:
        """Send a message and return Signal's timestamp of it; raises SignalError."""
        send = partial(
            self.messenger.send,
            *(chat, text),
            styles=styles,
            quote=quote,
            replaces=replaces,
            attachments=attachments,
        )
        return await self._repeated(chat, send)

    async def send_poll(self, chat: ChatId, poll: Poll) -> int:
        """Send a poll and return Signal's timestamp of it; raises SignalError."""
        return await self._repeated(chat, partial(self.messenger.send_poll, chat, poll))

    async def end_poll(self, chat: ChatId, timestamp: int) -> None:
        """Close one of the bot's polls; raises SignalError."""
        try:
            await self.messenger.end_poll(chat, timestamp)
        except SignalTimeout as error:
            if await self.settle(chat, error, MAX_COPIES) is None:
                raise

    async def _repeated(self, chat: ChatId, send: Callable[[], Coroutine[Any, Any, int]]) -> int:
        """Send, repeat it while it is in doubt, and return the timestamp.

        Raises:
            SignalTimeout: no phone confirmed any of the copies.
        """
        attempts: list[Attempt] = []
        while True:
            try:
                return await self._noted(chat, send(), attempts)
            except SignalTimeout:
                if len(attempts) >= MAX_COPIES:
                    self._abandon(attempts)
                    raise

    async def _noted(
        self,
        chat: ChatId,
        send: Coroutine[Any, Any, int],
        attempts: list[Attempt],
    ) -> int:
        """Await a send, note its timestamp, and return it.

        If the caller is cancelled, its turn has ended: its message is deleted for everyone once its
        timestamp is known.

        Args:
            attempts: earlier sends of the same message in doubt; this one is added if it is, too.
        """
        store, since = self.store.doubts, int(time.time() * 1_000) - CLOCK_SKEW_MS
        receipts, sending = self.messenger.receipts, asyncio.ensure_future(send)
        try:
            timestamp = await asyncio.shield(sending)
        except SignalTimeout as error:
            proven = await self._settled_or_abandoned(chat, error, attempts)
            if proven is None:
                raise
            timestamp = proven
        except asyncio.CancelledError:
            sending.add_done_callback(partial(self._orphan, chat))
            self._abandon(attempts)
            store.note(Doubt(None, chat, since, int(time.time() * 1_000) + LATE_START_MS))
            raise
        for attempt in attempts:
            receipts.sent_again(attempt, timestamp, is_edit=False)
        store.confirm(timestamp, ELSEWHERE)
        return timestamp

    async def _settled_or_abandoned(
        self, chat: ChatId, error: SignalTimeout, attempts: list[Attempt]
    ) -> int | None:
        """Wait for a proof of a send in doubt, and add it to the attempts if there is none."""
        attempt = error.sending
        try:
            proven = await self.settle(chat, error, len(attempts) + 1)
        except asyncio.CancelledError:
            self._abandon([*attempts, *([attempt] if isinstance(attempt, Attempt) else [])])
            raise
        is_in_doubt = isinstance(attempt, Attempt) and not isinstance(error, SignalPassedOver)
        if proven is None and is_in_doubt:
            attempts.append(attempt)
        return proven

    def abandon(self, part: OutgoingMessage) -> None:
        """Note that a message was deleted: if it has arrived after all, delete it for everyone."""
        self._abandon(self._of_waiting.pop(part.id, []))

    def _abandon(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self.messenger.receipts.abandon(attempt)

    def withdraw(self, chat: ChatId, timestamp: int) -> None:
        """Delete a message for everyone whose turn has ended; does not wait."""
        self._orphans.append((chat, timestamp))
        self.messenger.receipts.news.set()

    def _orphan(self, chat: ChatId, sending: asyncio.Future[int]) -> None:
        """Withdraw the message of a send whose turn has ended."""
        if sending.cancelled():
            return
        match sending.exception():
            case None:
                self.withdraw(chat, sending.result())
            case SignalTimeout(sending=Attempt() as attempt):
                self._abandon([attempt])

    async def _outage(self) -> bool:
        """Wait until Signal can be reached; return whether there was an outage.

        A send during an outage would use up one of the few that a message has.
        """
        failures = 0
        while True:
            await self.until_connected()
            try:
                await self.messenger.own_identity()  # only Signal itself can answer that
            except SignalUnavailable:
                failures += 1
                await asyncio.sleep(RETRY.seconds(failures))
            except SignalError:
                return failures > 0  # this Signal side cannot tell
            else:
                return failures > 0

    async def until_connected(self) -> bool:
        """Wait for a connection; return whether a wait was needed."""
        waited = False
        while not self.messenger.connected:
            waited = True
            await asyncio.sleep(RECONNECT_POLL_SECONDS)
        return waited

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

    async def _learn_members(self) -> bool:
        """Ask Signal for the members of groups with sends in doubt; return whether it told all."""
        all_known = True
        async with self._asking:
            for attempt in self.messenger.receipts.in_unknown_groups:
                if attempt.chat not in self._members:
                    try:
                        group = await self.messenger.group(attempt.chat)
                    except SignalError as error:
                        log.info("outbox.members_unknown", reason=type(error).__name__)
                        all_known = False
                        continue
                    self._members[attempt.chat] = None if group is None else group.members
                attempt.people = self._members[attempt.chat]
                attempt.news.set()  # a receipt may have come before
        return all_known

    def _keep(self, timestamp: int, person: str | None) -> None:
        self.store.doubts.confirm(timestamp, ELSEWHERE if person is None else person)


MAX_ATTEMPTS: Final = 10
"""After so many sends that certainly failed the bot gives up; the text stays in the store."""


MakeFile = Callable[[str], Awaitable[Attachment | None]]
"""Makes a file of its source, within a bound of time; returns None if it cannot."""


@dataclass(eq=False, repr=False, slots=True)
class Outbox:
    """Sends stored messages; reports chats where an untrusted new key prevents that.

    Attributes:
        make_file: makes the file that a message still lacks; None if nothing makes any.
    """

    messenger: Messenger
    store: ConversationStore
    _: KW_ONLY
    make_file: MakeFile | None = None
    untrusted: asyncio.Queue[ChatId] = field(default_factory=asyncio.Queue)
    doubts: Doubts = field(init=False)
    _put_aside: dict[str, list[OutgoingMessage]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.doubts = Doubts(self.messenger, self.store)

    async def deliver(self, parts: Sequence[OutgoingMessage], *, just_stored: bool = False) -> bool:
        """Send parts one after the other; return True if there were some and all were sent.

        Args:
            just_stored: the first part cannot have changed, so the store is not asked again.
        """
        sent = 0
        for number, part in enumerate(parts):
            if part.chat in self._put_aside:
                self._put_aside[part.chat].append(part)
            else:
                sent += await self._deliver(part, is_current=just_stored and not number)
        return 0 < sent == len(parts)

    def take_back(self, chat: ChatId) -> tuple[OutgoingMessage, ...]:
        """Remove and return the parts that were put aside for a chat; deliver them now."""
        return tuple(self._put_aside.pop(chat, ()))

    async def _deliver(self, part: OutgoingMessage, *, is_current: bool) -> bool:
        """Try to send a part until it is sent, withdrawn, put aside or given up; True if sent."""
        proven, failures = None, 0
        if self.doubts.is_in_doubt(part):
            await self.doubts.until_connected()
            proven = await self.doubts.earlier_proof(part)
        while proven is None:
            current = await self._to_send(part, is_current=is_current)
            if current is None:
                log.info("outbox.withdrawn")
                self.doubts.abandon(part)
                return False
            part, is_current = current, False
            try:
                timestamp = await self._send(part)
            except SignalTimeout as error:
                part, proven = await self._settled(part, error)
                if proven is None and part.attempts >= MAX_COPIES:
                    return await self._give_up(part, part.attempts, error)
            except SignalError as error:
                is_away = isinstance(error, SignalUnavailable) and not self.messenger.connected
                failures += not is_away
                again = part if is_away else await self._refused(part, failures, error)
                if again is None:
                    return False
                part = again
            else:
                return await self._sent(part, timestamp, by_receipt=False)
        return await self._sent(part, proven, by_receipt=True)

    async def _refused(
        self, part: OutgoingMessage, failures: int, error: SignalError
    ) -> OutgoingMessage | None:
        """Handle a send that certainly failed; return the message to be sent next, if any.

        Args:
            failures: number of such sends of this message.
        """
        if isinstance(error, SignalRejected) and part.replaces is not None and part.text:
            # The old message is gone or too old to be edited, so send a new one.
            return replace(part, replaces=None)
        if isinstance(error, SignalUntrusted) and not part.chat.is_group:
            log.warning("outbox.put_aside")
            self._put_aside.setdefault(part.chat, []).append(part)
            self.untrusted.put_nowait(part.chat)
            return None
        if isinstance(error, SignalRejected) or failures >= MAX_ATTEMPTS:
            await self._give_up(part, failures, error)
            return None
        delay = RETRY.seconds(failures)
        _log_retry(failures, error, delay)
        await asyncio.sleep(delay)
        return part

    async def _sent(self, part: OutgoingMessage, timestamp: int, *, by_receipt: bool) -> bool:
        withdrawal = await self.store.outbox.mark_sent(part, timestamp, by_receipt=by_receipt)
        self.doubts.sent(part, timestamp, by_receipt=by_receipt)
        if withdrawal is not None:  # its message was deleted in the meantime
            log.info("outbox.withdrawn")
            await self._deliver(withdrawal, is_current=True)
        return True

    async def _give_up(self, part: OutgoingMessage, attempts: int, error: SignalError) -> bool:
        await self.store.outbox.mark_failed(part, give_up=True)
        self.doubts.gave_up(part)
        metrics.GIVEN_UP.inc()
        log.error("outbox.gave_up", attempts=attempts, reason=type(error).__name__)
        return False

    async def _to_send(self, part: OutgoingMessage, *, is_current: bool) -> OutgoingMessage | None:
        """Wait for a connection; return a part as it may be sent now, None if it is withdrawn."""
        current: OutgoingMessage | None = part
        while current is not None:
            waited = await self.doubts.until_connected()
            if waited or not is_current:
                current = await self.store.outbox.as_waiting(current)
            if current is None or current.unmade is None:
                break
            # Stored before it is sent, so that after a crash the same message is sent again.
            file = None if self.make_file is None else await self.make_file(current.unmade)
            current = await self.store.outbox.add_file(current, file)
            is_current = True
        return current

    async def _send(self, part: OutgoingMessage) -> int:
        """Send a part and return its timestamp, or that of the message which it changes."""
        if part.is_reaction and (to := part.quote) is not None:
            # A second send is harmless: phones show one reaction of a person on a message.
            await self.messenger.react(
                part.chat, part.text, author=to.author, timestamp=to.timestamp
            )
            return to.timestamp
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
        self, part: OutgoingMessage, error: SignalTimeout
    ) -> tuple[OutgoingMessage, int | None]:
        """Wait for a receipt after a send in doubt.

        Returns:
            the message with its number of sends in doubt, and the timestamp if a receipt proves it.
        """
        copies = part.attempts + (not isinstance(error, SignalPassedOver))
        if copies > part.attempts:
            await self.store.outbox.mark_failed(part, give_up=False)
            _log_retry(copies, error, pause_after(copies, error))
        changed = _changed_by(part)
        row = part.id if changed is None else None
        timestamp = await self.doubts.settle(part.chat, error, copies, row=row)
        proven = timestamp if changed is None or timestamp is None else changed
        return replace(part, attempts=copies), proven


def _log_retry(attempt: int, error: SignalError, seconds: float) -> None:
    """Log a send that is tried again; warn once for each message."""
    say = log.warning if attempt == 1 else log.debug
    reason = type(error).__name__
    say("outbox.will_retry", attempt=attempt, reason=reason, delay_seconds=round(seconds, 2))


def _changed_by(part: OutgoingMessage) -> int | None:
    """Return the timestamp of the message that a reaction or a deletion is about, or None."""
    if part.is_reaction and part.quote is not None:
        return part.quote.timestamp
    return part.replaces if _is_deletion(part) else None


def _is_deletion(part: OutgoingMessage) -> bool:
    return part.replaces is not None and not part.text and not part.attachments


def pause_after(copies: int, error: SignalTimeout) -> float:
    """Return the seconds in which a receipt may come before the next send of a message."""
    if isinstance(error, SignalPassedOver):
        return PASSED_OVER_SECONDS
    if copies >= MAX_COPIES:
        return RECEIPT_SECONDS
    if isinstance(error, SignalRateLimited):
        asked = min(error.retry_after_seconds or 0.0, LIMITED_PAUSES[-1])
        return max(asked, LIMITED_PAUSES[copies - 1])
    return PAUSES[copies - 1]


@dataclass(eq=False, repr=False, slots=True)
class Notices:
    """Messages that answer no message: stored first, then sent in the order of their chat."""

    outbox: Outbox
    languages: Languages
    access: Access
    waiting: asyncio.Queue[OutgoingMessage] = field(default_factory=asyncio.Queue, init=False)

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
