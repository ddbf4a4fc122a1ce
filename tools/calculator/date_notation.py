"""Dates, times of day and durations as people write them, in small letters. All times are UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum, auto
from typing import Final, Self

from dateutil.relativedelta import relativedelta

from sandbox.errors import WorkError
from tools.calculator.reading import MONTHS, WEEKDAYS

_MONTH: Final = rf"(?:{'|'.join((*MONTHS, *(month[:3] for month in MONTHS), 'sept'))})\b\.?"
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?\b"
_CLOCK: Final = r"\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]m\b)?"
_CALENDAR: Final = "|".join(
    (
        r"\d{4}-\d\d-\d\d",
        r"\d{1,2}\.\d{1,2}\.\d{4}",
        r"\d{1,2}/\d{1,2}/\d{4}",
        rf"{_DAY}(?: of)? {_MONTH}(?:,? \d{{4}}\b)?",
        rf"{_MONTH} {_DAY}(?:,? \d{{4}}\b)?",
        rf"(?:(?:next|last) )?(?:{'|'.join(WEEKDAYS)})",
        "today|tomorrow|yesterday",
    )
)
POINT: Final = rf"(?:now|(?:{_CALENDAR})(?:(?: at | |t){_CLOCK})?|{_CLOCK})"
"""A pattern of what `read_point` reads."""

_UNIT: Final = (
    r"(?:years?|yrs?|months?|weeks?|wks?|days?|d|hours?|hrs?|h|minutes?|mins?|seconds?|secs?|s)\b"
)
_AMOUNT: Final = rf"\d{{1,7}}(?:\.\d{{1,6}})? ?{_UNIT}"
DURATION: Final = rf"{_AMOUNT}(?:,? (?:and )?{_AMOUNT})*"
"""A pattern of what `read_duration` reads."""

_POINT: Final = re.compile(rf"(now)|(?:({_CALENDAR})(?: at | |t)?)?({_CLOCK})?")
_TIME: Final = re.compile(r"(\d+):(\d+)(?::(\d+))?(?: ?([ap])m)?")
_AMOUNTS: Final = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)")
_UNITS: Final = {
    "y": "years", "mo": "months", "w": "weeks", "d": "days",
    "h": "hours", "mi": "minutes", "s": "seconds",
}  # fmt: skip
_HALVES: Final = {"a": 0, "p": 12}
_DAYS_FROM_TODAY: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}


class Precision(Enum):
    """What of a point in time was said."""

    DATE = auto()
    TIME = auto()
    BOTH = auto()


@dataclass(frozen=True, slots=True)
class Point:
    """A point in time: a day at midnight, a time of day of today, or both."""

    moment: datetime
    precision: Precision

    def written(self) -> str:
        """Write it, a day with its weekday."""
        clock = f"{self.moment:%H:%M:%S}".removesuffix(":00")
        day = self.moment.date().isoformat()
        weekday = WEEKDAYS[self.moment.weekday()].capitalize()
        match self.precision:
            case Precision.DATE:
                return f"{day} ({weekday})"
            case Precision.TIME:
                return clock
            case Precision.BOTH:
                return f"{day} {clock} ({weekday})"


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time: months as the calendar has them, and a rest of fixed length."""

    months: int
    rest: timedelta

    def plus(self, other: Self) -> Self:
        """Return both together."""
        return type(self)(self.months + other.months, self.rest + other.rest)

    def negated(self) -> Self:
        """Return as much time backwards."""
        return type(self)(-self.months, -self.rest)

    def after(self, point: Point) -> Point:
        """Return the point that is this much later; 31 January and a month is 28 February.

        Raises:
            OverflowError: there is no such year.
            ValueError: the same.
        """
        moment = point.moment + relativedelta(months=self.months) + self.rest
        timed = point.precision is Precision.DATE and self.rest % timedelta(days=1)
        return Point(moment, Precision.BOTH if timed else point.precision)


def read_point(text: str, now: datetime) -> Point:
    """Read what POINT matches.

    Raises:
        WorkError: there is no such day or time, or it can be read in two ways.
    """
    found = _POINT.fullmatch(text)
    if found is None or not text:
        raise WorkError(f"{text!r} is no point in time.")
    present, calendar, clock = found.groups()
    if present:
        return Point(now.replace(second=0, microsecond=0), Precision.BOTH)
    day = _day(calendar, now.date()) if calendar else now.date()
    moment = datetime.combine(day, _time(clock) if clock else time(), UTC)
    if not calendar:
        return Point(moment, Precision.TIME)
    return Point(moment, Precision.BOTH if clock else Precision.DATE)


def read_duration(text: str) -> Duration:
    """Read what DURATION matches.

    Raises:
        WorkError: it has parts of a month or a year.
        OverflowError: it is too long.
    """
    total = Duration(0, timedelta())
    for number, name in _AMOUNTS.findall(text):
        unit = _UNITS.get(name[:2]) or _UNITS[name[:1]]
        total = total.plus(_duration(number, unit))
    return total


def _duration(number: str, unit: str) -> Duration:
    months = {"years": 12, "months": 1}.get(unit)
    if months is None:
        return Duration(0, timedelta(**{unit: float(number)}))
    if "." in number:
        raise WorkError(f"Parts of {unit} have no fixed length: say it in days or hours.")
    return Duration(months * int(number), timedelta())


def _day(text: str, today: date) -> date:
    if text in _DAYS_FROM_TODAY:
        return today + timedelta(days=_DAYS_FROM_TODAY[text])
    if text.endswith(WEEKDAYS):
        return _weekday(text, today)
    year, month, day = _calendar_day(text)
    try:
        return date(year, month, day)
    except ValueError:
        raise WorkError(f"There is no day {text} in the calendar.") from None


def _weekday(text: str, today: date) -> date:
    """Return the first such day after today, or the last one before it."""
    weekday = WEEKDAYS.index(text.rpartition(" ")[2])
    if text.startswith("last "):
        return today - timedelta(days=(today.weekday() - weekday - 1) % 7 + 1)
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def _calendar_day(text: str) -> tuple[int, int, int]:
    """Return year, month and day."""
    if "/" in text:
        return _slashed(text)
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if named := re.search(r"[a-z]{3,}", text.replace(" of ", " ")):
        if len(numbers) < 2:
            raise WorkError(f"Say the year of {text.title()} too.")
        month = [name[:3] for name in MONTHS].index(named[0][:3]) + 1
        return numbers[1], month, numbers[0]
    if "." in text:
        numbers.reverse()
    return numbers[0], numbers[1], numbers[2]


def _slashed(text: str) -> tuple[int, int, int]:
    """Read 24/12/2026 and 12/24/2026, but nothing that can mean two days."""
    first, second, year = map(int, text.split("/"))
    if first <= 12 and second <= 12 and first != second:
        raise WorkError(
            f"{text} can be read in two ways: write it as YYYY-MM-DD (or, to divide, with spaces)."
        )
    return (year, first, second) if second > 12 else (year, second, first)


def _time(text: str) -> time:
    found = _TIME.fullmatch(text)
    if found is None:
        raise WorkError(f"{text!r} is no time of day.")
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    try:
        clock = time(hour, minute, second)
        return clock.replace(hour=hour % 12 + _HALVES[found[4]]) if found[4] else clock
    except ValueError:
        raise WorkError(f"There is no time of day {text}.") from None
