"""Local times of a person, and their time zone.

Daylight saving follows RFC 5545 (3.3.5). If the clocks skip a local time, it counts by the offset
before the gap: 02:30 comes when the clocks show 03:30. If they show it twice, the first counts.
"""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tools.errors import InvalidArguments

MAX_AHEAD: Final = timedelta(days=50 * 366)

YEARS: Final = range(1970, 2300)
"""In other years some zones have no time, or the calendar has no room for a rule."""

_HOW: Final = "Send at as a date with a time in ISO 8601, such as 2026-12-24T09:00."


def parse_at(text: str) -> datetime:
    """Return the time that a model sends, to the second; without an offset it is a local time.

    Raises:
        InvalidArguments: it lacks a date or a time.
    """
    text = text.strip()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArguments(f"This is no time. {_HOW}") from None
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
        return f"{days} days {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
