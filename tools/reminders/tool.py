"""`remind` and `schedule`, what lists and cancels what they set, and the person's time zone.

They have no effect outside, so after a crash a call runs again: the book knows by turn and call
which one it has carried out. But what they set lasts, and the model is shown it again: so once it
has read what strangers wrote, a person is asked first, also before anything is cancelled or moved.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import Field

from tools.base import Caller, Tool
from tools.errors import InvalidArguments, ToolError
from tools.reminders.book import Book, Entry
from tools.reminders.recurrence import (
    MAX_RULE_CHARACTERS,
    Rule,
    first_date,
    parse_rule,
    require_gaps,
)
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
from tools.reminders.zones import move_to
from tools.schema import tool_from

MAX_TEXT_CHARACTERS: Final = 1_000
MAX_AT_CHARACTERS: Final = 40
MAX_ZONE_CHARACTERS: Final = 64
MAX_NUMBER: Final = 10**9

REMINDER_GAP: Final = timedelta(minutes=15)
QUESTION_GAP: Final = timedelta(hours=1)
"""Between two dates of a series; a question costs the model's work."""

JUST_PAST: Final = timedelta(minutes=1)
"""A time that has only just passed means now."""

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


@dataclass(frozen=True, slots=True)
class Reminders:
    """The reminders of whoever calls, as far as they may be told in the chat of the call.

    Attributes:
        book: keeps them.
        caller: whose they are.
        now: the time, in UTC.
        at_most: how many a person may have.
        changed: called when something is due at another time than before.
    """

    book: Book
    caller: Caller
    now: datetime
    at_most: int
    changed: Callable[[], None]


async def remind(reminders: Reminders, text: Text, at: At, repeat: Repeat = "") -> str:
    """Remind the person of something at a time, in this chat. A reply to a reminder that has come,
    such as "in an hour", moves it: set it anew. One that is still to come is cancelled first.

    Args:
        reminders: Of the person.
        text: What to say then, in the person's language, as to them: "Call your mother".
        at: ISO 8601 such as 2026-12-24T09:00, in the person's local time unless it has an offset;
            for "in 10 minutes" add to the time of their message and keep its offset, +00:00.
        repeat: An RRULE such as FREQ=WEEKLY;BYDAY=TU; empty for once.
    """  # noqa: D205 - the model reads all of it
    return await _set(reminders, text, at, repeat, is_question=False)


async def schedule(reminders: Reminders, question: Text, at: At, repeat: Repeat = "") -> str:
    """Ask yourself a question at a time, with your tools; the person gets the answer in this chat.

    For what has to be looked up or worked out then, such as a morning brief; use remind for what
    can be said as it is.

    Args:
        reminders: Of the person.
        question: What to ask then, complete in itself, in the person's language.
        at: As for remind.
        repeat: As for remind.
    """
    return await _set(reminders, question, at, repeat, is_question=True)


async def list_reminders(reminders: Reminders) -> str:
    """List the person's reminders and scheduled questions, with their numbers and next dates.

    Args:
        reminders: Of the person.
    """
    caller = reminders.caller
    zone = await reminders.book.zone_of(caller.person) or "UTC"
    entries = await reminders.book.tell(caller.person, caller.chat, turn=caller.turn)
    listed = [_line(entry, zone) for entry in entries]
    return "\n".join([_now(reminders, zone), *(listed or ["There are none."])])


async def cancel_reminder(reminders: Reminders, number: Number) -> str:
    """Cancel a reminder or a scheduled question of the person, with all its repetitions.

    Args:
        reminders: Of the person.
        number: Its number, as remind or list_reminders tells it.
    """
    caller = reminders.caller
    cancelled = await reminders.book.cancel(
        caller.person, caller.chat, number, turn=caller.turn, call=caller.call
    )
    if cancelled is None:
        raise ToolError(f"There is no number {number} (any more). list_reminders has them.")
    return f"Number {number} is cancelled."


async def set_timezone(
    reminders: Reminders, zone: Annotated[str, Field(max_length=MAX_ZONE_CHARACTERS)]
) -> str:
    """Remember in which time zone the person is, once they have said where they are.

    Reminders in local time move along.

    Args:
        reminders: Of the person.
        zone: IANA name such as Europe/Berlin, or the city of such a name. Never guess it.
    """
    caller = reminders.caller
    name = await move_to(reminders.book, caller.person, zone, reminders.now)
    reminders.changed()
    return f"Remembered. {_now(reminders, name)}"


def reminder_tools(reminders_of: Callable[[Caller], Reminders]) -> Sequence[Tool]:
    """Return the tools, which work with the reminders of whoever calls."""
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
    known = await reminders.book.zone_of(reminders.caller.person)
    wanted = parse_at(at)
    if known is None and (wanted.tzinfo is None or repeat.strip()):
        raise ToolError(NO_ZONE)
    name = known or "UTC"
    if repeat.strip():
        gap = QUESTION_GAP if is_question else REMINDER_GAP
        date = await asyncio.to_thread(
            _first_of_series, wanted, repeat, ZoneInfo(name), reminders.now, gap
        )
    else:
        date = _only_date(wanted, ZoneInfo(name), reminders.now, name)
    entry = await reminders.book.add(
        person=reminders.caller.person,
        chat=reminders.caller.chat,
        turn=reminders.caller.turn,
        call=reminders.caller.call,
        is_question=is_question,
        text=text,
        local_at=date.local,
        repeat=date.repeat,
        due_at=to_ms(date.moment),
        at_most=reminders.at_most,
    )
    if entry is None:
        raise ToolError(
            f"The person has {reminders.at_most} reminders, which is all that one may have. Offer"
            " to cancel some."
        )
    reminders.changed()
    kind = "Scheduled question" if is_question else "Reminder"
    moment = from_ms(entry.due_at)
    wait = wait_until(moment, reminders.now)
    first = "comes first" if entry.repeat else "comes"
    return (
        f"{kind} {entry.number} is set. It {first} on {shown(moment, name)}, in {wait}."
        f" {_now(reminders, name)}"
    )


@dataclass(frozen=True, slots=True)
class _Date:
    """When an entry comes first: a moment, where it is one in local time that, and its rule."""

    moment: datetime
    local: str | None
    repeat: str | None = None


def _only_date(at: datetime, zone: ZoneInfo, now: datetime, name: str) -> _Date:
    """Return when something comes that comes once."""
    moment = at.astimezone(UTC) if at.tzinfo is not None else instant(at, zone)
    if moment <= now - JUST_PAST:
        raise InvalidArguments(
            f"This time has passed: it is {shown(now, name)} now. Tell the person, or send a later"
            " time."
        )
    if moment > now + MAX_AHEAD:
        raise InvalidArguments("This is more than 50 years away.")
    return _Date(moment, at.isoformat() if at.tzinfo is None else None)


def _first_of_series(
    at: datetime, repeat: str, zone: ZoneInfo, now: datetime, gap: timedelta
) -> _Date:
    """Return when something comes first that repeats; that is always in local time."""
    local = at if at.tzinfo is None else local_in(at, zone)
    if instant(local, zone) > now + MAX_AHEAD:
        raise InvalidArguments("This is more than 50 years away.")
    rule: Rule = parse_rule(repeat, zone)
    require_gaps(local, rule, gap)
    found = first_date(local, rule, zone, now)
    return _Date(found.moment, found.local.isoformat(), str(found.rule))


def _line(entry: Entry, zone: str) -> str:
    """Return an entry as the model is told of it."""
    kind = "question" if entry.is_question else "reminder"
    when = shown(from_ms(entry.due_at), zone)
    if entry.is_delivered:
        state = f"was delivered, for {when}, and is not marked as done"
    else:
        state = f"comes on {when}"
    repeats = f", repeats by {entry.repeat}" if entry.repeat else ""
    return f"{entry.number}. {kind} {state}{repeats}: {entry.text}"


def _now(reminders: Reminders, zone: str) -> str:
    return f"It is now {shown(reminders.now, zone)}."
