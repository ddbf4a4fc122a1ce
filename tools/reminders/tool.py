"""Reminders and scheduled questions: the tools that set, list and cancel them.

A call may run again after a crash: the book recognises it by its turn and call. A reminder lasts,
and the model is shown it again. So once the model has read strangers' words, a person is asked
before one is set, cancelled or moved.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NamedTuple
from zoneinfo import ZoneInfo

from pydantic import Field

from tools.base import Caller, Tool
from tools.errors import InvalidArguments, ToolError
from tools.reminders.recurrence import MAX_RULE_CHARACTERS, first_date, parse_rule, require_gaps
from tools.reminders.times import (
    MAX_AHEAD,
    from_ms,
    instant,
    local_in,
    parse_at,
    shown,
    to_ms,
    wait_until,
)
from tools.schema import tool_from

MAX_TEXT_CHARACTERS: Final = 1_000
MAX_AT_CHARACTERS: Final = 40
MAX_ZONE_CHARACTERS: Final = 64
MAX_NUMBER: Final = 10**9

REMINDER_GAP: Final = timedelta(minutes=15)
QUESTION_GAP: Final = timedelta(hours=1)
"""Least time between two dates of a series; a question costs the model's work."""

JUST_PAST: Final = timedelta(minutes=1)
"""A time that passed this recently means now."""

NO_ZONE: Final = (
    "It is not known in which time zone the person is. If they have said in which city they are,"
    " call set_timezone and then this tool again; else ask them for their city first. (A time with"
    " an offset that does not repeat needs no zone.)"
)

_REMIND: Final = "Set this reminder? I have read what strangers wrote, and it may come from them."
_SCHEDULE: Final = (
    "Ask myself this at that time, with my tools? I have read what strangers wrote, and it may come"
    " from them."
)
_CANCEL: Final = (
    "Cancel this for good? I have read what strangers wrote, and it may be their wish. !reminders"
    " lists what you have."
)
_MOVE: Final = (
    "Is this your time zone? I have read what strangers wrote, and it may come from them. Reminders"
    " in local time move along."
)

Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
At = Annotated[str, Field(max_length=MAX_AT_CHARACTERS)]
Repeat = Annotated[str, Field(max_length=MAX_RULE_CHARACTERS)]
Number = Annotated[int, Field(ge=1, le=MAX_NUMBER)]


class NewEntry(NamedTuple):
    """A reminder or scheduled question to store.

    Attributes:
        is_question: the bot asks itself the text.
        local_at: local time of the first date; None: the same moment in every zone.
        repeat: rule for further dates, or None.
        due_at: in ms since 1970.
    """

    is_question: bool
    text: str
    local_at: str | None
    repeat: str | None
    due_at: int


class Entry(NamedTuple):
    """A stored one.

    Attributes:
        number: for its person, never given twice.
        due_at: time of the next or the last date, in ms since 1970.
        is_delivered: it was said, and is still open.
    """

    number: int
    text: str
    due_at: int
    repeat: str | None
    is_question: bool
    is_delivered: bool


@dataclass(frozen=True, slots=True)
class Reminders:
    """The reminders of a caller, for one call; in a group only those of the group.

    Attributes:
        now: in UTC.
        at_most: how many a person may have.
        zone: returns the person's time zone.
        move: stores a time zone by the name of a place, and returns its name.
        add: stores an entry, once for each call; None if the person has `at_most`.
        listed: returns the entries by time; they and the turn are deleted together.
        cancel: deletes an entry by its number, once for each call; False if it is unknown.
    """

    now: datetime
    at_most: int
    zone: Callable[[], Awaitable[str | None]]
    move: Callable[[str], Awaitable[str]]
    add: Callable[[NewEntry], Awaitable[Entry | None]]
    listed: Callable[[], Awaitable[Sequence[Entry]]]
    cancel: Callable[[int], Awaitable[bool]]


async def remind(reminders: Reminders, text: Text, at: At, repeat: Repeat = "") -> str:
    """Remind the person at a time; again, if they reply to a reminder with a time.

    Args:
        text: In their language, such as "Call your mother".
        at: ISO 8601 in their local time. For "in 10 minutes", add to the message's time, with
            +00:00.
        repeat: RRULE such as FREQ=WEEKLY;BYDAY=TU.
    """
    return await _set(reminders, text, at, repeat, is_question=False)


async def schedule(reminders: Reminders, question: Text, at: At, repeat: Repeat = "") -> str:
    """Answer a question at a time, with your tools, such as a morning brief.

    Args:
        question: Complete in itself.
        at: As for remind.
    """
    return await _set(reminders, question, at, repeat, is_question=True)


async def list_reminders(reminders: Reminders) -> str:
    """List reminders and scheduled questions."""
    zone = await reminders.zone() or "UTC"
    listed = [_line(entry, zone) for entry in await reminders.listed()]
    return "\n".join([_now(reminders, zone), *(listed or ["There are none."])])


async def cancel_reminder(reminders: Reminders, number: Number) -> str:
    """Cancel a reminder or scheduled question."""
    if not await reminders.cancel(number):
        raise ToolError(f"There is no number {number} (any more). list_reminders has them.")
    return f"Number {number} is cancelled."


async def set_timezone(
    reminders: Reminders, zone: Annotated[str, Field(max_length=MAX_ZONE_CHARACTERS)]
) -> str:
    """Set the person's time zone if they say where they are; never guess.

    Args:
        zone: IANA name or its city.
    """
    return f"Remembered. {_now(reminders, await reminders.move(zone))}"


def reminder_tools(reminders_of: Callable[[Caller], Reminders]) -> Sequence[Tool]:
    """Return the tools, which work with the reminders of the caller."""
    given = {"reminders": reminders_of}
    return [
        tool_from(remind, given=given, changes=True, lasting=True, question=_REMIND),
        tool_from(schedule, given=given, changes=True, lasting=True, question=_SCHEDULE),
        tool_from(list_reminders, given=given),
        tool_from(cancel_reminder, given=given, changes=True, lasting=True, question=_CANCEL),
        tool_from(set_timezone, given=given, changes=True, lasting=True, question=_MOVE),
    ]


async def _set(reminders: Reminders, text: str, at: str, repeat: str, *, is_question: bool) -> str:
    """Add a reminder or a question, and say when it comes first."""
    now = reminders.now
    known = await reminders.zone()
    wanted = parse_at(at)
    if known is None and (wanted.tzinfo is None or repeat.strip()):
        raise ToolError(NO_ZONE)
    name = known or "UTC"
    zone = ZoneInfo(name)
    local: str | None
    rule: str | None = None
    if repeat.strip():
        gap = QUESTION_GAP if is_question else REMINDER_GAP
        moment, local, rule = await asyncio.to_thread(_series, wanted, repeat, zone, now, gap)
    else:
        moment, local = _only_date(wanted, zone, now, name)
    entry = await reminders.add(NewEntry(is_question, text, local, rule, to_ms(moment)))
    if entry is None:
        raise ToolError(
            f"The person has {reminders.at_most} reminders, which is all that one may have. Offer"
            " to cancel some."
        )
    kind = "Scheduled question" if is_question else "Reminder"
    due = from_ms(entry.due_at)
    first = "comes first" if entry.repeat else "comes"
    return (
        f"{kind} {entry.number} is set. It {first} on {shown(due, name)}, in"
        f" {wait_until(due, now)}. {_now(reminders, name)}"
    )


def _only_date(
    at: datetime, zone: ZoneInfo, now: datetime, name: str
) -> tuple[datetime, str | None]:
    """Return the moment of an entry that comes once, and its local time if it has one."""
    moment = at.astimezone(UTC) if at.tzinfo is not None else instant(at, zone)
    if moment <= now - JUST_PAST:
        raise InvalidArguments(
            f"This time has passed: it is {shown(now, name)} now. Tell the person, or send a later"
            " time."
        )
    _require_near(moment, now)
    return moment, at.isoformat() if at.tzinfo is None else None


def _series(
    at: datetime, repeat: str, zone: ZoneInfo, now: datetime, gap: timedelta
) -> tuple[datetime, str, str]:
    """Return the moment of the first date of a series, its local time, and its rule."""
    local = at if at.tzinfo is None else local_in(at, zone)
    _require_near(instant(local, zone), now)
    rule = parse_rule(repeat, zone)
    require_gaps(local, rule, gap)
    found = first_date(local, rule, zone, now)
    return found.moment, found.local.isoformat(), str(found.rule)


def _require_near(moment: datetime, now: datetime) -> None:
    if moment > now + MAX_AHEAD:
        raise InvalidArguments("This is more than 50 years away.")


def _line(entry: Entry, zone: str) -> str:
    kind = "question" if entry.is_question else "reminder"
    when = shown(from_ms(entry.due_at), zone)
    state = f"comes on {when}"
    if entry.is_delivered:
        state = f"was delivered, for {when}, and is not marked as done"
    repeats = f", repeats by {entry.repeat}" if entry.repeat else ""
    return f"{entry.number}. {kind} {state}{repeats}: {entry.text}"


def _now(reminders: Reminders, zone: str) -> str:
    return f"It is now {shown(reminders.now, zone)}."
