"""Repetition: recurrence rules (RRULE, RFC 5545) in a person's local time.

A series is the local time of its next date and a rule for the further ones; when a date has
passed, the next one takes its place. dateutil finds the dates, and searches up to the year 9999.
To bound that search, dates are first moved towards that year: the calendar repeats itself every
400 years (146,097 days, whole weeks). A rule without dates then costs a quarter of a second.

Run the functions that read a model's text on a thread (`asyncio.to_thread`).
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
"""Dates that may have passed since the last look at a series: 22 years of hourly ones."""

HORIZON: Final = timedelta(days=10 * 366)
"""Dates beyond it do not count."""

GAPS_COMPARED: Final = 200
"""Dates whose distance is compared: all of a day, however dense, and of the next."""

CALENDAR_YEARS: Final = 400
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


@dataclass(frozen=True, slots=True)
class NextDate:
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
    return Rule(pattern, _count(count), _until(until, zone))


def first_date(local: datetime, rule: Rule, zone: ZoneInfo, now: datetime) -> NextDate:
    """Return the first future date of a new series.

    Raises:
        InvalidArguments: all dates have passed.
    """
    found = next_date(local, rule, zone, now)
    if found is None:
        raise InvalidArguments("This rule has no date that is still to come. " + HOW)
    return found


def next_date(local: datetime, rule: Rule, zone: ZoneInfo, after: datetime) -> NextDate | None:
    """Return the first date of a series after a moment; None if the series has ended.

    Args:
        local: the local time of the series' next date.
        rule: for the further dates.
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
        InvalidArguments: they do; the text names the least distance.
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
    day = re.sub(r"^(\d{8})$", r"\1T235959", text).removesuffix("Z")
    try:
        until = datetime.strptime(day, "%Y%m%dT%H%M%S")  # noqa: DTZ007
        return local_in(until.replace(tzinfo=UTC), zone) if text.endswith("Z") else until
    except (ValueError, OverflowError):
        raise InvalidArguments("UNTIL is a date such as 20261231 or 20261231T180000Z.") from None
