"""Reminders at their time: each is said once, whatever ends the process.

What is due is queued for its chat, in the urgent lane: it must not wait behind a slow turn. There,
in one transaction, it becomes a stored message and is closed or moved to its next date; then the
message goes out like an answer. Without a connection nothing is begun, so what was missed meanwhile
comes late, says so, and of a series comes once. A restart finds what is due in the store.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import structlog

from bot.approvals.meaning import Meaning, meaning_of
from bot.chat.bells import BELL, LATE_MS, late_line
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.language.languages import Languages
from bot.messaging.events import Reaction
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    FurtherDate,
    OutgoingMessage,
    StoredReminder,
)
from conversation_store.reminders import MAX_FAILURES
from conversation_store.sections.reminders import ReminderStore
from tools.errors import InvalidArguments
from tools.reminders.recurrence import NextDate, next_date, stored_rule
from tools.reminders.times import from_ms, parse_local, to_ms, zone_named

log = structlog.get_logger()

CLOCK_SECONDS: Final = 1.0
"""A clock that is set, or a machine that slept, is noticed so late at the most."""

LOOK_SECONDS: Final = 60.0
"""How often the store is looked at without a reason."""

POLL_SECONDS: Final = 0.25
"""How often it is looked whether there is a connection again."""

BATCH: Final = 500
"""Due reminders that are read at once."""

NAME_CHARACTERS: Final = 40

STOPPED: Final = (
    "I have stopped asking myself this, because nothing came of it three times in a row. Tell me to"
    " schedule it again if you still want it:"
)


class Sender(Protocol):
    """Sends what is stored. Implemented by `bot.dispatch.outgoing.outbox.Outbox`."""

    async def deliver(
        self, parts: Sequence[OutgoingMessage], *, just_stored: bool = False
    ) -> object:
        """Send parts one after the other."""
        ...


class Connection(Protocol):
    """Whether anything can be sent. Implemented by every Messenger."""

    @property
    def connected(self) -> bool:
        """Whether messages can go out now."""
        ...


class Alarm:
    """Says what is due.

    Args:
        reminders: what is kept.
        lane: where it is said; the one that waits behind no turn.
        turns: where questions are answered, like messages of people.
        answering: returns the work of answering a question.
        connection: to the Signal side.
        outbox: sends it.
        is_welcome: whether a reminder may still be said: to whom, and where.
        languages: in which the bot itself speaks.
        disappears: told when something is to disappear, in ms.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        reminders: ReminderStore,
        *,
        lane: Mailboxes,
        turns: Mailboxes,
        answering: Callable[[AcceptedMessage], Job],
        connection: Connection,
        outbox: Sender,
        is_welcome: Callable[[StoredReminder], Awaitable[bool]],
        languages: Languages,
        disappears: Callable[[int], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reminders = reminders
        self._lane = lane
        self._turns = turns
        self._answering = answering
        self._connection = connection
        self._outbox = outbox
        self._is_welcome = is_welcome
        self._languages = languages
        self._disappears = disappears
        self._clock = clock
        self._queued: set[int] = set()
        self._next_at: int | None = None
        self._look = asyncio.Event()

    def look(self) -> None:
        """Look at the store: something is due at another time than before."""
        self._look.set()

    async def react(self, reaction: Reaction) -> None:
        """Take a 👍 as the word of a person that what they were reminded of is done."""
        if not reaction.removed and meaning_of(reaction.emoji) is Meaning.YES:
            await self._reminders.done(
                reaction.author.aci, reaction.chat, reaction.target_timestamp
            )

    async def run(self) -> None:
        """Queue what is due, until cancelled; raises StoreError."""
        while True:
            if not self._connection.connected:
                await asyncio.sleep(POLL_SECONDS)
                continue
            self._look.clear()
            self._next_at = await self._queue_due()
            await self._until(self._next_at)

    async def _queue_due(self) -> int | None:
        """Queue what is due and return when the next one is."""
        now_ms, last = self._now_ms(), (0, 0)
        while found := await self._reminders.due(now_ms, after=last, at_most=BATCH):
            for one in found:
                if one.id not in self._queued:
                    self._queued.add(one.id)
                    await self._lane.put(one.chat, Job(partial(self._ring, one.id)))
            last = found[-1].due_at, found[-1].id
        return await self._reminders.next_due(now_ms)

    async def _until(self, next_at: int | None) -> None:
        """Wait until that time (ms) by a clock that may be set, or until there is a reason."""
        looks_at = time.monotonic() + LOOK_SECONDS
        while not self._look.is_set():
            left = looks_at - time.monotonic()
            if next_at is not None:
                left = min(left, next_at / 1_000 - self._clock())
            if left <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, CLOCK_SECONDS)):
                    await self._look.wait()

    def _expect(self, further: FurtherDate | None) -> None:
        """Look again in time for the next date of a series."""
        if further is not None and (self._next_at is None or further.due_at < self._next_at):
            self.look()

    async def _ring(self, reminder_id: int) -> None:
        if self._turns.winding_down:
            return  # the next start says it, late if need be
        reminder = await self._reminders.find(reminder_id)
        is_due = reminder is not None and reminder.due_at <= self._now_ms()
        # One that is not due was moved since it was queued, and may be moved back by now.
        is_settled = reminder is None or (is_due and await self._say_once(reminder))
        self._queued.discard(reminder_id)
        if not is_settled:
            self.look()  # it is queued again when there is a connection, or when it is due

    async def _say_once(self, reminder: StoredReminder) -> bool:
        """Say what is due, and return whether it was: it may have been moved at this moment."""
        if not self._connection.connected:
            return False
        now_ms = self._now_ms()
        following = await asyncio.to_thread(_following, reminder, now_ms)
        further = None if following is None else _further(following)
        if not await self._is_welcome(reminder):
            log.info("reminder.passed_over")
            metrics.REMINDERS.labels("passed_over").inc()
            await self._reminders.pass_over(reminder, further)
            is_said = True
        elif not reminder.is_question:
            missed = 0 if following is None else following.passed - 1
            is_said = await self._remind(reminder, missed, further, now_ms)
        elif reminder.failures < MAX_FAILURES:
            is_said = await self._ask(reminder, further, now_ms)
        else:
            is_said = await self._stop_asking(reminder, now_ms)
        if is_said:
            self._expect(further)
        return is_said

    async def _remind(
        self, reminder: StoredReminder, missed: int, further: FurtherDate | None, now_ms: int
    ) -> bool:
        text = self._text(reminder, missed, now_ms)
        message = await self._reminders.deliver(reminder, text, further, now_ms)
        if message is None:
            return False
        self._expect_end(reminder, now_ms)
        is_late = now_ms - reminder.due_at > LATE_MS
        metrics.REMINDERS.labels("late" if is_late else "on_time").inc()
        await self._outbox.deliver((message,), just_stored=True)
        return True

    async def _ask(
        self, question: StoredReminder, further: FurtherDate | None, now_ms: int
    ) -> bool:
        """Let a question come in as if it had been written; its turn is one like any other."""
        accepted = await self._reminders.ask(question, further, now_ms)
        if accepted is None:
            return False
        self._expect_end(question, now_ms)
        metrics.REMINDERS.labels("asked").inc()
        job = self._answering(accepted)
        await self._turns.put(
            question.chat, Job(partial(self._answer, job), accepted, joins=job.joins)
        )
        return True

    async def _stop_asking(self, question: StoredReminder, now_ms: int) -> bool:
        text = f"{BELL}{self._languages.say(question.chat, STOPPED)}\n{question.text}"
        message = await self._reminders.deliver(question, text, None, now_ms)
        if message is None:
            return False
        log.warning("reminder.stopped", count=question.failures)
        metrics.REMINDERS.labels("stopped").inc()
        await self._outbox.deliver((message,), just_stored=True)
        return True

    def _expect_end(self, reminder: StoredReminder, now_ms: int) -> None:
        """Let what was said be forgotten in time, where messages disappear."""
        if reminder.timer_ms is not None:
            self._disappears(now_ms + reminder.timer_ms)

    async def _answer(self, job: Job) -> None:
        await job.run()
        self.look()  # perhaps nothing came of it once too often

    def _text(self, reminder: StoredReminder, missed: int, now_ms: int) -> str:
        """Return what is said: whose it is in a group, the words, and for when it was if late."""
        name = " ".join((reminder.person_name or "").split())[:NAME_CHARACTERS]
        lines = [f"{BELL}{name}: {reminder.text}" if name else f"{BELL}{reminder.text}"]
        if now_ms - reminder.due_at > LATE_MS:
            late = late_line(reminder.due_at, reminder.zone, missed=missed)
            lines.append(self._languages.say(reminder.chat, late))
        return "\n".join(lines)

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)


def _following(reminder: StoredReminder, now_ms: int) -> NextDate | None:
    """Return when a series goes on after now; None for what comes once, or has ended."""
    if reminder.local_at is None or reminder.repeat is None:
        return None
    local, zone = parse_local(reminder.local_at), zone_named(reminder.zone)
    try:
        return next_date(local, stored_rule(reminder.repeat), zone, from_ms(now_ms))
    except InvalidArguments:
        return None


def _further(date: NextDate) -> FurtherDate:
    return FurtherDate(date.local.isoformat(), str(date.rule), to_ms(date.moment))
