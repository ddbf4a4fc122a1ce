"""Repetition: recurrence rules (RRULE, RFC 5545) in a person's local time.

A series is the local time of its next date and the rule that the further ones follow; when a date
has passed, the next one takes its place. dateutil finds the dates, and would look for one until the
year 9999. So the calendar is moved there first: it repeats itself every 400 years (146,097 days,
whole weeks), and what never comes is found out in a quarter of a second at most.

What depends on a model's text runs on a thread (`asyncio.to_thread`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import MAXYEAR, UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Final
from zoneinfo import ZoneInfo

from dateutil.rrule import rrulestr

from tools.errors import InvalidArguments
from tools.reminders.times import instant, local_in

MAX_RULE_CHARACTERS: Final = 200
MAX_INTERVAL: Final = 1_000
MAX_COUNT: Final = 10_000
MAX_PASSED: Final = 200_000
"""Dates that may have passed since a series was looked at: hourly ones of 22 years."""

HORIZON: Final = timedelta(days=10 * 366)
"""A date that is further away does not count as one."""

GAPS_COMPARED: Final = 200
"""Dates whose distance is looked at: all of a day, however dense, and of the next."""

CALENDAR_YEARS: Final = 400
"""After so many years each date has its weekday again."""

HOW: Final = (
    "repeat is an RRULE of RFC 5545, such as FREQ=DAILY, FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,"
    " FREQ=MONTHLY;BYMONTHDAY=-1 (the last day of the month) or FREQ=HOURLY;BYMINUTE=0,30. Leave it"
    " out for something that comes once."
)

_FREQUENCIES: Final = frozenset({"HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"})
_TIMES: Final = re.compile(r"\d{1,2}(,\d{1,2}){0,59}")
_PLACE: Final = r"[+-]?0?[1-9]\d{0,2}"
_PLACES: Final = re.compile(rf"{_PLACE}(,{_PLACE}){{0,59}}")
_DAY: Final = r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)"
_DAYS: Final = re.compile(rf"{_DAY}(,{_DAY}){{0,20}}")
_PARTS: Final = {
    "INTERVAL": re.compile(r"\d{1,4}"),
    "WKST": re.compile(r"MO|SU"),
    "BYDAY": _DAYS,
    "BYMONTHDAY": _PLACES,
    "BYMONTH": _PLACES,
    "BYYEARDAY": _PLACES,
    "BYWEEKNO": _PLACES,
    "BYSETPOS": _PLACES,
    "BYHOUR": _TIMES,
    "BYMINUTE": _TIMES,
}  # fmt: skip
_END_OF_DAY: Final = re.compile(r"^(\d{8})$")


@dataclass(frozen=True, slots=True)
class Rule:
    """A recurrence rule that was checked.

    Attributes:
        pattern: everything but its end, as RRULE.
        count: how many dates it has, the next one included; None: no end by number.
        until: the last local time that a date may have; None: no end by time.
    """

    pattern: str
    count: int | None = None
    until: datetime | None = None

    def __str__(self) -> str:
        ends = []
        if self.count is not None:
            ends.append(f"COUNT={self.count}")
        if self.until is not None:
            ends.append(f"UNTIL={self.until:%Y%m%dT%H%M%S}")
        return ";".join([self.pattern, *ends])


@dataclass(frozen=True, slots=True)
class NextDate:
    """The first date of a series after a moment.

    Attributes:
        local: what the clocks show then, or would if they did not skip it.
        moment: when that is, in UTC.
        rule: which the further dates follow.
        passed: how many dates the series had before it.
    """

    local: datetime
    moment: datetime
    rule: Rule
    passed: int


def parse_rule(text: str, zone: ZoneInfo) -> Rule:
    """Return the rule that a text says.

    Args:
        text: an RRULE, with or without that word before it.
        zone: of the person; an end in UTC is understood there.

    Raises:
        InvalidArguments: it is none, or one that is not allowed; the text says which are.
    """
    if len(text) > MAX_RULE_CHARACTERS:
        raise InvalidArguments(f"This rule is too long. {HOW}")
    pairs = [part.partition("=") for part in _body(text).split(";") if part]
    parts = {name: value for name, _, value in pairs}
    if len(parts) < len(pairs) or parts.get("FREQ") not in _FREQUENCIES:
        raise InvalidArguments(f"FREQ is not one of HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY. {HOW}")
    frequency, count, until = parts.pop("FREQ"), parts.pop("COUNT", None), parts.pop("UNTIL", None)
    for name, value in parts.items():
        if name not in _PARTS or not _PARTS[name].fullmatch(value):
            raise InvalidArguments(f"{name[:20]} has no place in a rule, or no such value. {HOW}")
    if int(parts.get("INTERVAL", 1)) not in range(1, MAX_INTERVAL + 1):
        raise InvalidArguments(f"INTERVAL is a number from 1 to {MAX_INTERVAL}.")
    if "BYSETPOS" in parts and frequency in {"HOURLY", "DAILY"}:
        raise InvalidArguments("BYSETPOS goes with WEEKLY, MONTHLY and YEARLY.")
    pattern = ";".join(f"{name}={value}" for name, value in {"FREQ": frequency, **parts}.items())
    return Rule(pattern, _count(count), _until(until, zone))


def stored_rule(text: str) -> Rule:
    """Return a rule from its own text."""
    return parse_rule(text, ZoneInfo("UTC"))


def first_date(local: datetime, rule: Rule, zone: ZoneInfo, now: datetime) -> NextDate:
    """Return the first date of a new series that is still to come.

    Raises:
        InvalidArguments: there is none.
    """
    found = next_date(local, rule, zone, now)
    if found is None:
        raise InvalidArguments("This rule has no date that is still to come. " + HOW)
    return found


def next_date(local: datetime, rule: Rule, zone: ZoneInfo, after: datetime) -> NextDate | None:
    """Return the first date of a series after a moment; None where it has ended.

    Args:
        local: the local time of the series' next date.
        rule: which it follows.
        zone: of the person.
        after: the moment, in UTC.

    Raises:
        InvalidArguments: no date can follow this rule.
    """
    last = local_in(after, zone) + HORIZON
    before: datetime | None = None
    for passed, date in enumerate(islice(_dates(local, rule), MAX_PASSED)):
        if date > last:
            return None
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
        InvalidArguments: they do; the text says how far apart they have to be.
    """
    dates = islice(_dates(local, rule), GAPS_COMPARED)
    if any(later - earlier < at_least for earlier, later in pairwise(dates)):
        minutes = int(at_least.total_seconds()) // 60
        raise InvalidArguments(f"It may repeat every {minutes} minutes at most.")


def _dates(local: datetime, rule: Rule) -> Iterator[datetime]:
    """Yield the local times of a series."""
    moved = (MAXYEAR - local.year) // CALENDAR_YEARS * CALENDAR_YEARS
    try:
        found = rrulestr(rule.pattern, dtstart=local.replace(year=local.year + moved))
        for number, date in enumerate(found):
            known = date.replace(year=date.year - moved)
            over = rule.until is not None and known > rule.until
            if over or (rule.count is not None and number >= rule.count):
                return
            yield known
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidArguments(f"No date can follow this rule. {HOW}") from error


def _body(text: str) -> str:
    return "".join(text.upper().split()).removeprefix("RRULE:")


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,5}", text) or not 1 <= int(text) <= MAX_COUNT:
        raise InvalidArguments(f"COUNT is a number from 1 to {MAX_COUNT}.")
    return int(text)


def _until(text: str | None, zone: ZoneInfo) -> datetime | None:
    """Return the last local time; a date alone means all of that day."""
    if text is None:
        return None
    day, in_utc = _END_OF_DAY.sub(r"\1T235959", text), text.endswith("Z")
    try:
        until = datetime.strptime(day.removesuffix("Z"), "%Y%m%dT%H%M%S")  # noqa: DTZ007
        return local_in(until.replace(tzinfo=UTC), zone) if in_utc else until
    except (ValueError, OverflowError):
        raise InvalidArguments("UNTIL is a date such as 20261231 or 20261231T180000Z.") from None
