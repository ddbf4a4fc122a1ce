"""Reminders: send each at its time, once, even if the process is killed.

A due reminder is queued for its chat in the urgent queue, so that it waits for no slow turn. There,
in one transaction, it becomes a stored message and is closed or moved to its next date; then the
message goes out like an answer. Without a connection, nothing starts. Missed reminders come late
and say so; a series comes once. A restart finds due reminders in the store.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

import structlog

from bot.chat.chat import Chats
from bot.chat.handler import LATE_MS, late_line
from bot.chat.meaning import Meaning, meaning_of
from bot.chat.quotes import BELL
from bot.chat.upkeep import Timer
from bot.observability import metrics
from bot.signal.events import Reaction
from bot.signal.messenger import Messenger
from conversation_store.models import FurtherDate, StoredReminder
from conversation_store.reminders import MAX_FAILURES, ReminderStore
from tools.base import InvalidArguments
from tools.reminders import NextDate, from_ms, next_date, parse_rule, to_ms, zone_named

log = structlog.get_logger()

POLL_SECONDS: Final = 0.25
"""Interval of checks for a connection."""

BATCH: Final = 500
"""Due reminders read in one query."""

NAME_CHARACTERS: Final = 40

STOPPED: Final = (
    "I have stopped asking myself this, because nothing came of it three times in a row. Tell me to"
    " schedule it again if you still want it:"
)


@dataclass(eq=False, repr=False, slots=True)
class Alarm:
    """Sends due reminders; calls `disappears` with the time (ms) at which to delete one."""

    reminders: ReminderStore
    chats: Chats
    messenger: Messenger
    _: KW_ONLY
    disappears: Callable[[int], None]
    clock: Callable[[], float] = time.time
    _queued: set[int] = field(default_factory=set, init=False)
    _timer: Timer = field(init=False)

    def __post_init__(self) -> None:
        self._timer = Timer(self.clock, self.chats.reminders_changed)

    async def react(self, reaction: Reaction) -> None:
        """Mark a reminder as done if a person reacts with 👍."""
        if not reaction.removed and meaning_of(reaction.emoji) is Meaning.YES:
            await self.reminders.done(reaction.author.aci, reaction.chat, reaction.target_timestamp)

    async def run(self) -> None:
        """Queue due reminders until cancelled; raises StoreError."""
        while True:
            if not self.messenger.connected:
                await asyncio.sleep(POLL_SECONDS)
                continue
            self.chats.reminders_changed.clear()
            self._timer.next_at = await self._queue_due()
            await self._timer.wait()

    async def _queue_due(self) -> int | None:
        """Queue due reminders and return the time of the next one."""
        now_ms, last = self._now_ms(), (0, 0)
        while found := await self.reminders.due(now_ms, after=last, at_most=BATCH):
            for row, where, due_at in found:
                last = due_at, row
                if row not in self._queued:
                    self._queued.add(row)
                    await self.chats.urgent_room.wait()
                    with self.chats.open(where) as chat:
                        chat.add(partial(self._ring, row), urgent=True)
        return await self.reminders.next_due(now_ms)

    async def _ring(self, reminder_id: int) -> None:
        if self.chats.winding_down:
            return  # the next start sends it, perhaps late
        reminder = await self.reminders.find(reminder_id)
        is_due = reminder is not None and reminder.due_at <= self._now_ms()
        # A reminder that is not due was moved after it was queued.
        is_settled = reminder is None or (is_due and await self._say_once(reminder))
        self._queued.discard(reminder_id)
        if not is_settled:
            # Queue the reminder again when there is a connection, or when it is due.
            self.chats.reminders_changed.set()

    async def _say_once(self, reminder: StoredReminder) -> bool:
        """Send a due reminder; return False if it has to be queued again."""
        if not self.messenger.connected:
            return False
        now_ms = self._now_ms()
        following = await asyncio.to_thread(_following, reminder, now_ms)
        further = None
        if following is not None:
            local, rule, moment = following.local, following.rule, following.moment
            further = FurtherDate(local.isoformat(), str(rule), to_ms(moment))
        if not await self.chats.door.welcomes(reminder):
            log.info("reminder.passed_over")
            metrics.REMINDERS.labels("passed_over").inc()
            await self.reminders.pass_over(reminder, further)
            is_said = True
        elif reminder.is_question and reminder.failures < MAX_FAILURES:
            is_said = await self._ask(reminder, further, now_ms)
        else:
            missed = 0 if following is None else following.passed - 1
            is_said = await self._tell(reminder, missed, further, now_ms)
        if is_said and further is not None:
            self._timer.at(further.due_at)
        return is_said

    async def _tell(
        self, reminder: StoredReminder, missed: int, further: FurtherDate | None, now_ms: int
    ) -> bool:
        """Send a reminder's words; for a question that kept failing, say that it has ended."""
        if reminder.is_question:
            stopped = self.chats.notices.languages.say(reminder.chat, STOPPED)
            text, further, outcome = f"{BELL}{stopped}\n{reminder.text}", None, "stopped"
        else:
            text = self._text(reminder, missed, now_ms)
            outcome = "late" if now_ms - reminder.due_at > LATE_MS else "on_time"
        message = await self.reminders.deliver(reminder, text, further, now_ms)
        if message is None:
            return False
        self._expect_end(reminder, now_ms)
        metrics.REMINDERS.labels(outcome).inc()
        if outcome == "stopped":
            log.warning("reminder.stopped", count=reminder.failures)
        await self.chats.notices.outbox.deliver((message,), just_stored=True)
        return True

    async def _ask(
        self, question: StoredReminder, further: FurtherDate | None, now_ms: int
    ) -> bool:
        """Accept a scheduled question like a message; it gets an ordinary turn."""
        accepted = await self.reminders.ask(question, further, now_ms)
        if accepted is None:
            return False
        self._expect_end(question, now_ms)
        metrics.REMINDERS.labels("asked").inc()
        await self.chats.room.wait()
        with self.chats.open(question.chat) as chat:
            chat.add(accepted)
        return True

    def _expect_end(self, reminder: StoredReminder, now_ms: int) -> None:
        """Plan the deletion of a reminder in a chat with disappearing messages."""
        if reminder.timer_ms is not None:
            self.disappears(now_ms + reminder.timer_ms)

    def _text(self, reminder: StoredReminder, missed: int, now_ms: int) -> str:
        """Return the message: the person's name in a group, the words, and the due time if late."""
        name = " ".join((reminder.person_name or "").split())[:NAME_CHARACTERS]
        lines = [f"{BELL}{name}: {reminder.text}" if name else f"{BELL}{reminder.text}"]
        if now_ms - reminder.due_at > LATE_MS:
            late = late_line(reminder.due_at, reminder.zone, missed=missed)
            lines.append(self.chats.notices.languages.say(reminder.chat, late))
        return "\n".join(lines)

    def _now_ms(self) -> int:
        return int(self.clock() * 1_000)


def _following(reminder: StoredReminder, now_ms: int) -> NextDate | None:
    """Return the next date of a series after now, or None."""
    if reminder.local_at is None or reminder.repeat is None:
        return None
    local, zone = datetime.fromisoformat(reminder.local_at), zone_named(reminder.zone)
    try:
        return next_date(local, parse_rule(reminder.repeat), zone, from_ms(now_ms))
    except InvalidArguments:
        return None
