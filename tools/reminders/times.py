"""A person's own time: what `at` means there, and how a moment is shown to them.

Daylight saving follows RFC 5545 (3.3.5): a local time that the clocks skip counts by the offset
before the gap, so 02:30 comes when the clocks show 03:30; one that they show twice comes the first
time.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tools.errors import InvalidArguments

MAX_AHEAD: Final = timedelta(days=50 * 366)

YEARS: Final = range(1970, 2300)
"""In other years some zones have no time, or the calendar has no room for a rule."""

HOW: Final = "Send at as a date with a time in ISO 8601, such as 2026-12-24T09:00."


def parse_at(text: str) -> datetime:
    """Return what `at` says, to the second; without an offset it is a local time.

    Raises:
        InvalidArguments: it is no date with a time.
    """
    text = text.strip()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArguments(f"This is no time. {HOW}") from None
    if at.year not in YEARS:
        raise InvalidArguments(f"Nobody is reminded in the year {at.year}. {HOW}")
    if "T" not in text.upper() and ":" not in text:
        raise InvalidArguments(f"The time of day is missing. {HOW}")
    return at.replace(microsecond=0)


def parse_local(text: str) -> datetime:
    """Return a local time from its own text, ISO 8601 without an offset."""
    return datetime.fromisoformat(text)


def zone_named(name: str | None) -> ZoneInfo:
    """Return a time zone; UTC where nobody has told it, or where the database knows it no more."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def instant(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment, in UTC, of a local time without an offset."""
    return local.replace(tzinfo=zone, fold=0).astimezone(UTC)


def local_in(moment: datetime, zone: ZoneInfo) -> datetime:
    """Return what the clocks of a zone show at a moment, without an offset."""
    return moment.astimezone(zone).replace(tzinfo=None)


def shown(moment: datetime, zone: str) -> str:
    """Return a moment as people of a zone read it, with its weekday."""
    local = moment.astimezone(zone_named(zone))
    return f"{local:%A}, {local.day} {local:%B %Y}, {local:%H:%M} ({zone})"


def to_ms(moment: datetime) -> int:
    """Return a moment in ms since 1970."""
    return round(moment.timestamp() * 1_000)


def from_ms(at_ms: int) -> datetime:
    """Return the moment, in UTC, that lies so many ms after 1970 began."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC)


def wait_until(moment: datetime, now: datetime) -> str:
    """Return how long it is until then, as `2 days 3 h`, `4 h 5 min` or `6 min`."""
    minutes = max(0, -(-int((moment - now).total_seconds()) // 60))
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    if days:
        return f"{days} days {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
