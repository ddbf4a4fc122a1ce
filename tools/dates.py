"""`date_time`: the clock of any zone, and calendar arithmetic, which models get wrong."""

import asyncio
import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, Final

from dateutil.relativedelta import relativedelta
from pydantic import Field

from tools.clock import MAX_ZONE_CHARACTERS, find_zone, time_in
from tools.errors import InvalidArguments

MAX_DATE_CHARACTERS: Final = 40
MAX_CHANGE_CHARACTERS: Final = 100
MAX_DIGITS: Final = 8

_OUT_OF_RANGE: Final = "The calendar has the years 1 to 9999."
_UNITS: Final = {
    **dict.fromkeys(("y", "yr", "year"), "years"),
    **dict.fromkeys(("mo", "month"), "months"),
    **dict.fromkeys(("w", "week"), "weeks"),
    **dict.fromkeys(("d", "day"), "days"),
    **dict.fromkeys(("h", "hr", "hour"), "hours"),
    **dict.fromkeys(("m", "min", "minute"), "minutes"),
}
_AMOUNT: Final = re.compile(rf"([+-]?) ?(\d{{1,{MAX_DIGITS}}}) ?([a-z]+?)s?\b(?:,| and)? ?")

Moment = Annotated[str, Field(max_length=MAX_DATE_CHARACTERS)]


async def date_time(
    start: Moment = "now",
    add: Annotated[str, Field(max_length=MAX_CHANGE_CHARACTERS)] = "",
    until: Moment = "",
    zone: Annotated[str, Field(max_length=MAX_ZONE_CHARACTERS)] = "UTC",
) -> str:
    """Tell the time in a zone, work out a date, or count the time between two. Use it for all
    dates.

    Args:
        start: now, today, or ISO 8601.
        add: Such as 1 month -2 days.
        zone: IANA name, city, or UTC+2.
    """  # noqa: D205 - the model reads all of it
    # The first call reads the directory of zones from the disk.
    return await asyncio.to_thread(answer, start, add, until, zone, datetime.now(UTC))


def answer(start: str, add: str, until: str, zone: str, now: datetime) -> str:
    """Return what `date_time` answers at a moment.

    Raises:
        InvalidArguments: a date, an amount or the zone cannot be read, or the result is outside of
            the calendar.
    """
    if start.strip().lower() in {"", "now"} and not add.strip() and not until.strip():
        return time_in(zone, now)
    local = now.astimezone(find_zone(zone, now)[1])
    try:
        moment = _moment(start, local) + change(add)
    except (ValueError, OverflowError):
        raise InvalidArguments(_OUT_OF_RANGE) from None
    return difference(moment, _moment(until, local)) if until.strip() else _shown(moment)


def change(text: str) -> relativedelta:
    """Return an amount of time such as `1 year 2 months -3 days`; a sign holds for one number."""
    amounts: dict[str, int] = {}
    rest = text.strip().lower()
    while rest:
        found = _AMOUNT.match(rest)
        unit = _UNITS.get(found[3]) if found else None
        if found is None or unit is None:
            raise InvalidArguments("add is a number of years, months, weeks, days, hours, minutes.")
        number = int(found[2])
        amounts[unit] = amounts.get(unit, 0) + (-number if found[1] == "-" else number)
        rest = rest[found.end() :]
    return relativedelta(**amounts)


def difference(start: date | datetime, end: date | datetime) -> str:
    """Return a sentence with the time between two dates."""
    first, last = _with_time(start), _with_time(end)
    sign = "-" if last < first else ""
    earlier, later = sorted((first, last))
    days, rest = divmod(later - earlier, timedelta(days=1))
    counted = [_many(days, "day") + _hours_and_minutes(rest)]
    if isinstance(start, datetime) or isinstance(end, datetime):
        counted.append(_hours_and_minutes(later - earlier).strip() or "0 h")
    if days >= 7:  # a week
        weeks, left = divmod(days, 7)
        counted.append(_many(weeks, "week") + (f" {_many(left, 'day')}" if left else ""))
    calendar = relativedelta(later, earlier)
    if calendar.years or calendar.months:
        names = (("year", calendar.years), ("month", calendar.months), ("day", calendar.days))
        counted.append(" ".join(_many(number, name) for name, number in names if number))
    return f"From {_shown(start)} to {_shown(end)}: {' = '.join(sign + each for each in counted)}"


def _moment(text: str, now: datetime) -> date | datetime:
    """Return a date, or a date with a time in the zone of `now`."""
    wanted = text.strip().lower() or "now"
    today = now.replace(tzinfo=None, microsecond=0, second=0)
    if wanted in {"now", "today"}:
        return today if wanted == "now" else today.date()
    try:
        return date.fromisoformat(wanted)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(wanted)
    except ValueError:
        raise InvalidArguments(
            f"{text!r} is no date: send today, now, YYYY-MM-DD or YYYY-MM-DDTHH:MM"
        ) from None
    try:
        return found if found.tzinfo is None else _local(found, now.tzinfo)
    except OverflowError:
        raise InvalidArguments(_OUT_OF_RANGE) from None


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def _with_time(moment: date | datetime) -> datetime:
    if isinstance(moment, datetime):
        return moment
    return datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001  # all are of one zone


def _shown(moment: date | datetime) -> str:
    time = f" {moment:%H:%M}" if isinstance(moment, datetime) else ""
    return f"{moment.year:04}-{moment:%m-%d}{time} ({moment:%A})"


def _hours_and_minutes(time: timedelta) -> str:
    hours, minutes = divmod(time // timedelta(minutes=1), 60)
    return (f" {hours} h" if hours else "") + (f" {minutes} min" if minutes else "")


def _many(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")
