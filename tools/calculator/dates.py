"""One calculation with dates or times of day from text to text. Runs inside the sandbox."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from dateutil.relativedelta import relativedelta

from sandbox.errors import WorkError
from tools.calculator.date_notation import (
    DURATION,
    POINT,
    Point,
    Precision,
    read_duration,
    read_point,
)
from tools.calculator.display import written
from tools.calculator.notation import MAX_CHARACTERS

_UNREADABLE: Final = (
    "This cannot be read as a calculation with dates. Write for example 2026-11-22 + 6 weeks, "
    "3 months after 31 January 2026, days between 2026-01-01 and 2026-12-24, weekday of "
    "2026-12-24, 14:30 + 95 min."
)
_OUT_OF_RANGE: Final = "A date must lie in the years 1 to 9999."
_TWO_KINDS: Final = "One has a date and the other a time of day alone: say the date of both."
_SPELLINGS: Final = str.maketrans("−–", "--")  # noqa: RUF001 as people write them
_DAY: Final = timedelta(days=1)
_SECONDS: Final = {"hours": 3_600, "minutes": 60, "seconds": 1}
_WORKING_DAYS: Final = {"working days", "business days", "workdays"}

_RELATIVE: Final = re.compile(
    r"\b(?:today|tomorrow|yesterday|now|until|till|since|ago|(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
)
_ASKED: Final = (
    r"(?:how (?:many|much|long) )?"
    r"(?:(?P<unit>(?:working |business )?days|workdays|years|months|weeks|hours|minutes|seconds|"
    r"time) )?(?:is it |are there |is there )?"
)
_SINGLE: Final = (
    r"(?:(?:the )?(?:weekday|day|day of the week|date) (?:of|on) |"
    rf"(?:what|which) (?:week)?day (?:is|was|will be) )?(?P<point>{POINT})"
)
_SHIFTED: Final = rf"(?P<point>{POINT})(?P<shifts>(?: ?[+-] ?{DURATION})+)"
_SHIFT: Final = re.compile(rf"([+-]) ?({DURATION})")
_BESIDE: Final = rf"(?P<duration>{DURATION}) (?P<side>after|from|before) (?P<point>{POINT})"
_AGO: Final = rf"(?P<duration>{DURATION}) ago"
_SUBTRACTED: Final = rf"(?P<later>{POINT}) ?- ?(?P<earlier>{POINT})"
_BETWEEN: Final = (
    rf"{_ASKED}(?:between |from )?(?P<first>{POINT}) ?(?:and|to|until|till|-) ?(?P<second>{POINT})"
)
_UNTIL: Final = rf"{_ASKED}(?:until|till|to) (?P<point>{POINT})"
_SINCE: Final = rf"{_ASKED}since (?P<point>{POINT})"


def calculate_dates(text: str, now: datetime) -> str:
    """Return a day, a time of day, or how long it is between two.

    Args:
        text: as people and models write it.
        now: in UTC, for words such as today.

    Raises:
        WorkError: it cannot be read, or leaves the calendar.
    """
    if len(text) > MAX_CHARACTERS:
        raise WorkError(f"An expression may have {MAX_CHARACTERS:,} characters, not more.")
    plain = " ".join(text.lower().translate(_SPELLINGS).split()).rstrip("=?. ")
    for pattern, answer in _FORMS:
        if found := pattern.fullmatch(plain):
            try:
                result = answer(found, now)
            except (OverflowError, ValueError):
                raise WorkError(_OUT_OF_RANGE) from None
            today = f"; today is {now.date().isoformat()} (UTC)" if _RELATIVE.search(plain) else ""
            return result + today
    raise WorkError(_UNREADABLE)


def _single(found: re.Match[str], now: datetime) -> str:
    return read_point(found["point"], now).written()


def _shifted(found: re.Match[str], now: datetime) -> str:
    start = end = read_point(found["point"], now)
    for sign, text in _SHIFT.findall(found["shifts"]):
        duration = read_duration(text)
        end = (duration if sign == "+" else duration.negated()).after(end)
    return _moved(start, end)


def _beside(found: re.Match[str], now: datetime) -> str:
    start, duration = read_point(found["point"], now), read_duration(found["duration"])
    return _moved(
        start, (duration.negated() if found["side"] == "before" else duration).after(start)
    )


def _ago(found: re.Match[str], now: datetime) -> str:
    duration = read_duration(found["duration"])
    whole = not duration.rest % _DAY
    start = read_point("today" if whole else "now", now)
    return duration.negated().after(start).written()


def _moved(start: Point, end: Point) -> str:
    """Write where a point has come to, a time of day with the days that have passed."""
    days = (end.moment.date() - start.moment.date()).days
    if end.precision is not Precision.TIME or days == 0:
        return end.written()
    return f"{end.written()}, {_counted(abs(days), 'day')} {'later' if days > 0 else 'earlier'}"


def _subtracted(found: re.Match[str], now: datetime) -> str:
    earlier, later = read_point(found["earlier"], now), read_point(found["later"], now)
    if later.precision is earlier.precision is Precision.TIME:
        earlier, later = sorted((earlier, later), key=lambda point: point.moment)
    return _span(earlier, later)


def _between(found: re.Match[str], now: datetime) -> str:
    first, second = read_point(found["first"], now), read_point(found["second"], now)
    return _onwards(first, second, found["unit"])


def _until(found: re.Match[str], now: datetime) -> str:
    point = read_point(found["point"], now)
    return _onwards(_present(point.precision, now), point, found["unit"])


def _since(found: re.Match[str], now: datetime) -> str:
    point = read_point(found["point"], now)
    return _onwards(point, _present(point.precision, now), found["unit"])


def _present(precision: Precision, now: datetime) -> Point:
    """Return today, or now, as precisely as another point is known."""
    if precision is Precision.DATE:
        return read_point("today", now)
    return Point(read_point("now", now).moment, precision)


def _onwards(first: Point, second: Point, unit: str | None) -> str:
    """Write how long it is from one point to another, over midnight for two times of day."""
    if first.precision is second.precision is Precision.TIME and second.moment < first.moment:
        next_day = Point(second.moment + _DAY, Precision.TIME)
        return f"{_span(first, next_day, unit)} (over midnight)"
    return _span(first, second, unit)


_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], str]], ...]] = tuple(
    (re.compile(pattern, re.ASCII), answer)
    for pattern, answer in (
        (_SINGLE, _single),
        (_SHIFTED, _shifted),
        (_BESIDE, _beside),
        (_AGO, _ago),
        (_SUBTRACTED, _subtracted),
        (_BETWEEN, _between),
        (_UNTIL, _until),
        (_SINCE, _since),
    )
)


def _span(first: Point, second: Point, unit: str | None = None) -> str:
    """Write how long it is from one point to another."""
    if (first.precision is Precision.TIME) != (second.precision is Precision.TIME):
        raise WorkError(_TWO_KINDS)
    if unit in _WORKING_DAYS:
        return _working_days(first, second)
    distance = second.moment - first.moment
    if unit in _SECONDS:
        return f"{written(distance / timedelta(seconds=_SECONDS[unit]))} {unit}"
    sign = "-" if distance < timedelta() else ""
    if distance % _DAY:
        return sign + _clock(abs(distance))
    days = abs(distance.days)
    parts = _in_other_words(*sorted((first.moment, second.moment)))
    return f"{sign}{_counted(days, 'day')}{parts}"


def _in_other_words(first: datetime, second: datetime) -> str:
    """Write a span of a week or more in weeks, and in years and months."""
    days = (second - first).days
    if days < 7:
        return ""
    weeks = _joined((days // 7, "week"), (days % 7, "day"))
    calendar = relativedelta(second, first)
    months = _joined((calendar.years, "year"), (calendar.months, "month"), (calendar.days, "day"))
    return f" ({weeks}; {months})" if days >= 28 and calendar.days != days else f" ({weeks})"


def _clock(distance: timedelta) -> str:
    minutes, seconds = divmod(distance.seconds, 60)
    return _joined(
        (distance.days, "day"), (minutes // 60, "h"), (minutes % 60, "min"), (seconds, "s")
    )


def _working_days(first: Point, second: Point) -> str:
    """Count Mondays to Fridays from one day to another, both included."""
    start, end = sorted((first.moment.date(), second.moment.date()))
    weeks, rest = divmod((end - start).days + 1, 7)
    days = weeks * 5 + sum((start.weekday() + offset) % 7 < 5 for offset in range(rest))
    return (
        f"{_counted(days, 'working day')} (Monday to Friday from {start.isoformat()} to "
        f"{end.isoformat()}, both included; holidays are not known here)"
    )


def _joined(*counts: tuple[int, str]) -> str:
    return " ".join(_counted(number, name) for number, name in counts if number)


def _counted(number: int, name: str) -> str:
    plural = "s" if number != 1 and name not in {"h", "min", "s"} else ""
    return f"{number} {name}{plural}"
