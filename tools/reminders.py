"""Reminders and scheduled questions, at a person's local times.

Daylight saving follows RFC 5545 (3.3.5). If the clocks skip a local time, it counts by the offset
before the gap: 02:30 comes when the clocks show 03:30. If they show it twice, the first counts.

A series is the local time of its next date and a rule for the further ones (RRULE, RFC 5545); when
a date has passed, the next one takes its place. dateutil finds the dates. Run the functions that
read a model's text on a thread (`asyncio.to_thread`).
"""

import asyncio
import re
from calendar import isleap
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import MAXYEAR, UTC, datetime, timedelta
from functools import cache, partial
from itertools import islice, pairwise
from typing import Annotated, Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil.rrule import rrulestr
from pydantic import Field

from tools.base import Caller, InvalidArguments, Said, Tool, ToolError
from tools.dates import find_zone, names_zone
from tools.schema import tool_from

MAX_AHEAD: Final = timedelta(days=50 * 366)

YEARS: Final = range(1970, 2300)
"""In other years some zones have no time, or the calendar has no room for a rule."""

_HOW: Final = "Send at as a date with a time in ISO 8601, such as 2026-12-24T09:00."


_OFFSET_OF_A_MARK: Final = re.compile(r" ?UTC([-+]\d\d:\d\d)?$", re.IGNORECASE)
"""An offset as the marks of messages have it."""


_LIKE_A_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?")


def parse_at(text: str) -> datetime:
    """Return the time that a model sends, to the second; without an offset it is a local time.

    Raises:
        InvalidArguments: it lacks a date or a time.
    """
    text = _OFFSET_OF_A_MARK.sub(lambda found: found[1] or "+00:00", text.strip())
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        is_date = _LIKE_A_DATE.match(text)
        why = "There is no such day or time" if is_date else "This is no time"
        raise InvalidArguments(f"{why}. {_HOW}") from None
    if at.year not in YEARS:
        raise InvalidArguments(f"Nobody is reminded in the year {at.year}. {_HOW}")
    if "T" not in text.upper() and ":" not in text:
        raise InvalidArguments(f"The time of day is missing. {_HOW}")
    return at.replace(microsecond=0)


def zone_named(name: str | None) -> ZoneInfo:
    """Return a time zone; UTC if it is not known, or no longer in the database."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment, in UTC, of a local time without an offset."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def local_in(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return the local time of a moment, without an offset."""
    return moment.astimezone(zone).replace(tzinfo=None)


def shown(moment: datetime, zone: str) -> str:
    """Return a moment as people of a zone read it, with its weekday."""
    local = moment.astimezone(zone_named(zone))
    return f"{local:%A}, {local.day} {local:%B %Y}, {local:%H:%M} ({zone})"


def to_ms(moment: datetime) -> int:
    """Return a moment in ms since 1970."""
    return round(moment.timestamp() * 1_000)


def from_ms(at_ms: int) -> datetime:
    """Return the moment, in UTC, of a time in ms since 1970."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


def wait_until(moment: datetime, now: datetime) -> str:
    """Return the time until a moment, as `2 days 3 h`, `4 h 5 min` or `6 min`."""
    minutes = max(0, -(-int((moment - now).total_seconds()) // 60))
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    if days:
        return f"{days} day{'s' * (days > 1)} {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


MAX_RULE_CHARACTERS: Final = 200
MAX_INTERVAL: Final = 1_000
COUNTS: Final = range(1, 10_001)
MAX_PASSED: Final = 200_000
"""Dates that may have passed since the last look at a series: 22 years of hourly ones."""

HORIZON: Final = timedelta(days=10 * 366)
"""Dates beyond it do not count."""

GAPS_COMPARED: Final = 200
"""Number of dates whose distances are compared: two days of dates with the least gap."""

HOW: Final = (
    "repeat is an RRULE of RFC 5545, such as FREQ=DAILY, FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,"
    " FREQ=MONTHLY;BYMONTHDAY=-1 (the last day of the month) or FREQ=HOURLY;BYMINUTE=0,30. Leave it"
    " out for something that comes once."
)

_UTC: Final = ZoneInfo("UTC")
_FREQUENCIES: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"})
_TIMES: Final = r"\d{1,2}(,\d{1,2}){0,59}"
_PLACE: Final = r"[+-]?0?[1-9]\d{0,2}"
_PLACES: Final = rf"{_PLACE}(,{_PLACE}){{0,59}}"
_DAY: Final = r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)"
_PARTS: Final = {
    "INTERVAL": r"\d{1,4}",
    "WKST": r"MO|SU",
    "BYDAY": rf"{_DAY}(,{_DAY}){{0,20}}",
    "BYMONTHDAY": _PLACES,
    "BYMONTH": _PLACES,
    "BYYEARDAY": _PLACES,
    "BYWEEKNO": _PLACES,
    "BYSETPOS": _PLACES,
    "BYHOUR": _TIMES,
    "BYMINUTE": _TIMES,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A checked recurrence rule.

    Attributes:
        pattern: everything but its end, as RRULE.
        count: its number of dates, the next one included; None: no end by number.
        until: the last local time of a date; None: no end by time.
    """

    pattern: str
    count: int | None = None
    until: datetime | None = None

    def __str__(self) -> str:
        count = "" if self.count is None else f";COUNT={self.count}"
        until = "" if self.until is None else f";UNTIL={self.until:%Y%m%dT%H%M%S}"
        return self.pattern + count + until


class NextDate(NamedTuple):
    """The first date of a series after a moment.

    Attributes:
        local: the local time, even if the clocks skip it.
        moment: the same in UTC.
        rule: for the further dates.
        passed: the number of dates before it.
    """

    local: datetime
    moment: datetime
    rule: Rule
    passed: int


def parse_rule(text: str, zone: ZoneInfo = _UTC) -> Rule:
    """Return the rule in a text.

    Args:
        text: an RRULE, with or without that word before it.
        zone: of the person; an end in UTC is understood there.

    Raises:
        InvalidArguments: it is not an allowed rule; the text names the allowed ones.
    """
    if len(text) > MAX_RULE_CHARACTERS:
        raise InvalidArguments(f"This rule is too long. {HOW}")
    body = "".join(text.upper().split()).removeprefix("RRULE:")
    pairs = [part.partition("=") for part in body.split(";") if part]
    parts = {name: value for name, _, value in pairs}
    if len(parts) < len(pairs) or parts.get("FREQ") not in _FREQUENCIES:
        raise InvalidArguments(f"FREQ is not one of HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY. {HOW}")
    frequency, count, until = parts.pop("FREQ"), parts.pop("COUNT", None), parts.pop("UNTIL", None)
    for name, value in parts.items():
        if name not in _PARTS or not re.fullmatch(_PARTS[name], value):
            raise InvalidArguments(f"{name[:20]} has no place in a rule, or no such value. {HOW}")
    if int(parts.get("INTERVAL", 1)) not in range(1, MAX_INTERVAL + 1):
        raise InvalidArguments(f"INTERVAL is a number from 1 to {MAX_INTERVAL}.")
    if "BYSETPOS" in parts and frequency in {"HOURLY", "DAILY"}:
        raise InvalidArguments("BYSETPOS goes with WEEKLY, MONTHLY and YEARLY.")
    pattern = ";".join(f"{name}={value}" for name, value in {"FREQ": frequency, **parts}.items())
    if count is not None and (not re.fullmatch(r"\d{1,5}", count) or int(count) not in COUNTS):
        raise InvalidArguments(f"COUNT is a number from 1 to {COUNTS[-1]}.")
    return Rule(pattern, None if count is None else int(count), _until(until, zone))


_EVERY: Final = {
    "HOURLY": ("every hour", "every {count} hours"),
    "DAILY": ("every day", "every {count} days"),
    "WEEKLY": ("every week", "every {count} weeks"),
    "MONTHLY": ("every month", "every {count} months"),
    "YEARLY": ("every year", "every {count} years"),
}
_ON: Final = {
    "MO": "on Mondays", "TU": "on Tuesdays", "WE": "on Wednesdays", "TH": "on Thursdays",
    "FR": "on Fridays", "SA": "on Saturdays", "SU": "on Sundays",
}  # fmt: skip


def told_rule(text: str) -> Sequence[str]:
    """Return a rule in words, as sentences; empty if it is not one of the usual ones."""
    try:
        rule = parse_rule(text)
    except InvalidArguments:
        return ()
    parts = dict(part.split("=") for part in rule.pattern.split(";"))
    one, several = _EVERY[parts.pop("FREQ")]
    count = int(parts.pop("INTERVAL", 1))
    said = [one if count == 1 else several.format(count=count)]
    for day in parts.pop("BYDAY", "").split(","):
        said += [_ON.get(day, "?")] if day else []
    for day in parts.pop("BYMONTHDAY", "").split(","):
        said += [_of_month(int(day))] if day else []
    parts.pop("WKST", None)
    if parts or "?" in said:
        return ()
    if rule.count is not None:
        said.append(f"{rule.count} times")
    if rule.until is not None:
        said.append(f"until {rule.until:%Y-%m-%d %H:%M}")
    return said


def _of_month(day: int) -> str:
    if day == -1:
        return "on the last day of the month"
    return f"on day {day} of the month" if day > 0 else "?"


def next_date(local: datetime, rule: Rule, zone: ZoneInfo, after: datetime) -> NextDate | None:
    """Return the first date of a series after a moment; None if the series has ended.

    Args:
        local: the local time of the series' next date.
        after: the moment, in UTC.

    Raises:
        InvalidArguments: no date can follow this rule.
    """
    last = local_in(after, zone) + HORIZON
    before: datetime | None = None
    for passed, date in enumerate(islice(_dates(local, rule, last), MAX_PASSED)):
        moment = instant(date, zone)
        # When the clocks go ahead, two local times of an hourly series are one moment.
        if moment > after and moment != before:
            rest = replace(rule, count=None if rule.count is None else rule.count - passed)
            return NextDate(date, moment, rest, passed)
        before = moment
    return None


def require_gaps(local: datetime, rule: Rule, at_least: timedelta) -> None:
    """Refuse a series whose dates follow each other too closely.

    Raises:
        InvalidArguments: they do; the text names the least distance.
    """
    dates = islice(_dates(local, rule, local + HORIZON), GAPS_COMPARED)
    if any(later - earlier < at_least for earlier, later in pairwise(dates)):
        minutes = int(at_least.total_seconds()) // 60
        raise InvalidArguments(f"It may repeat every {minutes} minutes at most.")


def _dates(local: datetime, rule: Rule, last: datetime) -> Iterator[datetime]:
    """Yield the local times of a series, at most up to the last one.

    dateutil looks for a date up to the year 9999, which takes a second if there is none. So it
    looks in the latest years that have the same days: the calendar repeats itself.
    """
    moved = _last_years_like(local.year, last.year) - local.year
    try:
        found = rrulestr(rule.pattern, dtstart=local.replace(year=local.year + moved))
        for number, date in enumerate(found):
            known = date.replace(year=date.year - moved)
            over = known > last or (rule.until is not None and known > rule.until)
            if over or (rule.count is not None and number >= rule.count):
                return
            yield known
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidArguments(f"No date can follow this rule. {HOW}") from error


@cache
def _last_years_like(first: int, last: int) -> int:
    """Return the first of the latest years with the same weekdays and leap days as some years."""
    wanted = [_calendar(year) for year in range(first, last + 1)]
    years = range(MAXYEAR + 1 - len(wanted), first, -1)
    return next(y for y in years if [_calendar(y + n) for n in range(len(wanted))] == wanted)


def _calendar(year: int) -> tuple[int, bool]:
    return datetime(year, 1, 1).weekday(), isleap(year)  # noqa: DTZ001


def _until(text: str | None, zone: ZoneInfo) -> datetime | None:
    """Return the last local time; a date alone means all of that day."""
    if text is None:
        return None
    day = re.sub(r"^(\d{8})$", r"\1T235959", text).removesuffix("Z")
    try:
        until = datetime.strptime(day, "%Y%m%dT%H%M%S")  # noqa: DTZ007
        return local_in(until.replace(tzinfo=UTC), zone) if text.endswith("Z") else until
    except (ValueError, OverflowError):
        raise InvalidArguments("UNTIL is a date such as 20261231 or 20261231T180000Z.") from None


MAX_TEXT_CHARACTERS: Final = 1_000
MAX_AT_CHARACTERS: Final = 40
MAX_ZONE_CHARACTERS: Final = 64
MAX_NUMBER: Final = 10**9
MAX_MINUTES: Final = 50 * 366 * 24 * 60

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
Minutes = Annotated[int, Field(ge=0, le=MAX_MINUTES)]
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
    """A stored reminder or scheduled question.

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
        listed: returns the entries by time; the turn is deleted together with their sources.
        cancel: deletes an entry by its number, once for each call; False if it is unknown.
    """

    now: datetime
    at_most: int
    zone: Callable[[], Awaitable[str | None]]
    move: Callable[[str], Awaitable[str]]
    add: Callable[[NewEntry], Awaitable[Entry | None]]
    listed: Callable[[], Awaitable[Sequence[Entry]]]
    cancel: Callable[[int], Awaitable[bool]]


async def remind(
    reminders: Reminders, text: Text, at: At = "", repeat: Repeat = "", in_minutes: Minutes = 0
) -> str:
    """Send the person a reminder at a time, once or repeatedly.

    Args:
        text: What to do, in their language: "Call your mother".
        at: ISO 8601 in their local time, without offset: 2026-12-24T09:00.
        repeat: RRULE. Every second Tuesday: FREQ=WEEKLY;INTERVAL=2;BYDAY=TU. Leave out for once.
        in_minutes: Instead of at, for "in 10 minutes".
    """
    if in_minutes:
        at = (reminders.now + timedelta(minutes=in_minutes)).isoformat()
    return await _set(reminders, text, at, repeat, is_question=False)


async def schedule(reminders: Reminders, question: Text, at: At, repeat: Repeat = "") -> str:
    """Answer a question at a time, with your tools, such as a morning brief.

    Args:
        question: Complete in itself.
        at: ISO 8601 in their local time, as for remind.
        repeat: RRULE, as for remind.
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


SET_TIMEZONE: Final = "set_timezone"


async def set_timezone(
    reminders: Reminders, zone: Annotated[str, Field(max_length=MAX_ZONE_CHARACTERS)]
) -> str:
    """Store the person's time zone once they say where they live; never guess.

    Args:
        zone: IANA name: Europe/Vienna for Wien.
    """
    return f"Remembered. {_now(reminders, await reminders.move(zone))}"


_NUMBER: Final = re.compile(r"\d{1,3}")
_WORD: Final = re.compile(r"\w+")


def zone_as_said(arguments: Any, _: Caller, own: Sequence[Said]) -> bool:
    """Whether the person has named the zone or one of its cities."""
    for said in own:
        with suppress(InvalidArguments):
            name, _zone = find_zone(arguments.zone, said.at)
            if names_zone(said.text, name):
                return True
    return False


def reminder_as_said(arguments: Any, caller: Caller, own: Sequence[Said]) -> bool:
    """Whether the person's words have the text, in this order, and the time; not for a series."""
    wanted = _WORD.findall(arguments.text.casefold())
    if arguments.repeat.strip() or not wanted:
        return False
    for said in own:
        at = arguments.at
        if arguments.in_minutes:
            at = (said.at + timedelta(minutes=arguments.in_minutes)).isoformat()
        words = iter(_WORD.findall(said.text.casefold()))
        if all(word in words for word in wanted) and _time_as_said(at, caller, said):
            return True
    return False


def _time_as_said(at: str, caller: Caller, said: Said) -> bool:
    """Whether a text has a time: its hour and minute, or how long it is from the message."""
    try:
        moment = parse_at(at)
    except InvalidArguments:
        return False
    numbers = {int(number) for number in _NUMBER.findall(said.text)}
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone_named(caller.zone))
    minutes = round((moment - said.at).total_seconds() / 60)
    if not numbers.isdisjoint({minutes - 1, minutes, minutes + 1}):
        return True
    local = moment.astimezone(zone_named(caller.zone))
    hours = {local.hour, local.hour % 12, local.hour % 12 or 12}
    is_hour = minutes % 60 in {59, 0, 1} and round(minutes / 60) in numbers
    return is_hour or (not numbers.isdisjoint(hours) and local.minute in numbers | {0})


def reminder_tools(reminders_of: Callable[[Caller], Reminders]) -> Sequence[Tool]:
    """Return the tools, which work with the reminders of the caller."""
    offered = partial(tool_from, given={"reminders": reminders_of})
    changing = partial(offered, changes=True, lasting=True)
    in_words = {
        "repeat": told_rule,
        "in_minutes": lambda minutes: (f"in {minutes} min",) if minutes else (),
    }
    return [
        changing(remind, question=_REMIND, told=in_words, as_said=reminder_as_said),
        changing(schedule, question=_SCHEDULE, told=in_words),
        offered(list_reminders),
        changing(cancel_reminder, question=_CANCEL),
        changing(set_timezone, question=_MOVE, as_said=zone_as_said),
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
        moment, local, rule = await asyncio.to_thread(
            first_of_series, wanted, repeat, zone, now, gap
        )
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


def first_of_series(
    at: datetime, repeat: str, zone: ZoneInfo, now: datetime, gap: timedelta
) -> tuple[datetime, str, str]:
    """Return the moment of the first date of a new series, its local time, and its rule.

    Raises:
        InvalidArguments: the rule is not allowed, too dense, or has no future date.
    """
    local = at if at.tzinfo is None else local_in(at, zone)
    _require_near(instant(local, zone), now)
    rule = parse_rule(repeat, zone)
    require_gaps(local, rule, gap)
    found = next_date(local, rule, zone, now)
    if found is None:
        raise InvalidArguments("This rule has no date that is still to come. " + HOW)
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
