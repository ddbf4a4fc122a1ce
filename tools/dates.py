"""`shift_date` and `date_difference`: the calendar, which models get wrong."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Final

from dateutil.relativedelta import relativedelta
from pydantic import Field

from tools.errors import InvalidArguments

MAX_DATE_CHARACTERS: Final = 40
MAX_AMOUNT: Final = 10_000_000
MINUTES_OF_A_DAY: Final = 24 * 60

_OUT_OF_RANGE: Final = "The calendar has the years 1 to 9999."

Moment = Annotated[str, Field(max_length=MAX_DATE_CHARACTERS)]
Amount = Annotated[int, Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]


async def shift_date(
    start: Moment,
    *,
    years: Amount = 0,
    months: Amount = 0,
    weeks: Amount = 0,
    days: Amount = 0,
    hours: Amount = 0,
    minutes: Amount = 0,
) -> str:
    """Add to a date or subtract from it, and tell the weekday. Use it for every date you work out.

    Args:
        start: today, now, a date (2026-12-24) or a date with a time (2026-12-24T14:30).
        years: To add; negative to subtract, as with all of them. Without any, the weekday is told.
        months: The day stays, or is the last of the month: 31 January + 1 month is 28 February.
        weeks: Of 7 days.
        days: Of 24 hours.
        hours: They need no time in start: a date begins at midnight.
        minutes: As hours.
    """
    return shifted(
        start,
        relativedelta(
            years=years, months=months, weeks=weeks, days=days, hours=hours, minutes=minutes
        ),
        datetime.now(UTC),
    )


async def date_difference(start: Moment, end: Moment) -> str:
    """Count the time from one date to another: days, weeks, months and years between them.

    Args:
        start: today, now, a date (2026-01-01) or a date with a time (2026-01-01T14:30).
        end: As start.
    """
    return difference(start, end, datetime.now(UTC))


def shifted(start: str, change: relativedelta, now: datetime) -> str:
    """Return a sentence with the date that is so much later.

    Args:
        start: what a model sends; see `shift_date`.
        change: what is added.
        now: the time, with its zone.

    Raises:
        InvalidArguments: `start` is no date, or the result has no place in the calendar.
    """
    moment = _moment(start, now)
    try:
        result = moment + change
    except (ValueError, OverflowError):
        raise InvalidArguments(_OUT_OF_RANGE) from None
    return _shown(result)


def difference(start: str, end: str, now: datetime) -> str:
    """Return a sentence with the time between two dates; see `shifted`."""
    first, last = (_with_time(_moment(text, now)) for text in (start, end))
    with_times = any(isinstance(_moment(text, now), datetime) for text in (start, end))
    sign = "-" if last < first else ""
    earlier, later = sorted((first, last))
    days, rest = divmod(later - earlier, timedelta(days=1))
    counted = [f"{sign}{_many(days, 'day')}{_clock(rest)}"]
    if with_times:
        minutes = (later - earlier) // timedelta(minutes=1)
        counted.append(f"{sign}{_clock(timedelta(minutes=minutes), hours_only=True).strip()}")
    if days >= 7:  # a week
        weeks, left = divmod(days, 7)
        counted.append(f"{sign}{_many(weeks, 'week')}" + (f" {_many(left, 'day')}" if left else ""))
    calendar = relativedelta(later, earlier)
    if calendar.years or calendar.months:
        names = (("year", calendar.years), ("month", calendar.months), ("day", calendar.days))
        counted.append(sign + " ".join(_many(number, name) for name, number in names if number))
    from_, to = (_shown(_moment(text, now)) for text in (start, end))
    return f"From {from_} to {to}: {' = '.join(counted)}"


def _moment(text: str, now: datetime) -> date | datetime:
    """Return a date, or a date with a time in UTC."""
    wanted = text.strip().lower()
    if wanted == "now":
        return now.astimezone(UTC).replace(tzinfo=None, microsecond=0, second=0)
    if wanted == "today":
        return now.astimezone(UTC).date()
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
    return found if found.tzinfo is None else _in_utc(found)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise InvalidArguments(_OUT_OF_RANGE) from None


def _with_time(moment: date | datetime) -> datetime:
    if isinstance(moment, datetime):
        return moment
    return datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001  # all of them are in UTC


def _shown(moment: date | datetime) -> str:
    time = f" {moment:%H:%M}" if isinstance(moment, datetime) else ""
    return f"{moment.year:04}-{moment:%m-%d}{time} ({moment:%A})"


def _clock(rest: timedelta, *, hours_only: bool = False) -> str:
    hours, minutes = divmod(rest // timedelta(minutes=1), 60)
    return (f" {hours} h" if hours or hours_only else "") + (f" {minutes} min" if minutes else "")


def _many(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")
