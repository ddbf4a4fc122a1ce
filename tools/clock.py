"""Clocks: the time in a zone of the IANA time zone database, or at an offset."""

import re
import unicodedata
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from tools.errors import InvalidArguments

MAX_ZONE_CHARACTERS: Final = 64
CHANGE_WITHIN: Final = timedelta(days=366)

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)
_NEAREST: Final = 5
_NO_PLACES: Final = {"Factory", "localtime"}


def time_in(zone: str, now: datetime) -> str:
    """Return a sentence with the local time of a zone.

    Raises:
        InvalidArguments: the zone is unknown; the text has the nearest names.
    """
    name, found = find_zone(zone, now)
    local = now.astimezone(found)
    details = [text for text in (_abbreviation(local), _change(local)) if text not in {"", name}]
    more = f" ({'; '.join(details)})" if details else ""
    return (
        f"{_date(local)}, {local:%H:%M:%S} in {name}{more}. "
        f"ISO 8601: {local.isoformat(timespec='seconds')}"
    )


def find_zone(text: str, now: datetime) -> tuple[str, tzinfo]:
    """Return a zone and its name: a `ZoneInfo`, or an offset that never changes.

    Args:
        text: a zone's name, its city, or an offset.
        now: zones with one city's name count as the same if their clocks agree now.

    Raises:
        InvalidArguments: the zone is unknown; the text has the nearest names.
    """
    folded = _folded(text) or "utc"
    by_name, by_city = _zones()
    if name := by_name.get(folded):
        return name, ZoneInfo(name)
    if offset := _OFFSET.fullmatch(folded.replace("_", "")):
        return _fixed(offset)
    names = by_city.get(folded, ())
    locals_ = [now.astimezone(ZoneInfo(name)) for name in names]
    if len({(_offset(local), _next_change(local)) for local in locals_}) == 1:
        return names[0], ZoneInfo(names[0])
    if names:
        raise InvalidArguments(f"{text!r} may be {' or '.join(names)}: send one of these names.")
    close = get_close_matches(folded, [*by_name, *by_city], n=_NEAREST)
    nearest = dict.fromkeys(by_name.get(key) or by_city[key][0] for key in close)
    hint = f"Similar: {', '.join(nearest)}. " if nearest else ""
    raise InvalidArguments(
        f"There is no time zone named {text!r}. {hint}"
        "Send the IANA name of the zone that the place lies in, such as Asia/Shanghai for Beijing."
    )


def _fixed(offset: re.Match[str]) -> tuple[str, tzinfo]:
    difference = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    if offset[1] == "-":
        difference = -difference
    if not timedelta(hours=-12) <= difference <= timedelta(hours=14):
        raise InvalidArguments("There is no such offset: they go from UTC-12 to UTC+14.")
    name = _offset_name(difference)
    return name, timezone(difference, name)


@cache
def _zones() -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the names of zones by their folded form, and by the folded names of their cities."""
    by_name: dict[str, str] = {}
    by_city: dict[str, tuple[str, ...]] = {}
    for name in sorted(available_timezones() - _NO_PLACES):
        by_name[_folded(name)] = name
        area, slash, city = name.rpartition("/")
        if slash and area != "Etc":
            by_city[_folded(city)] = (*by_city.get(_folded(city), ()), name)
    return by_name, by_city


def _folded(text: str) -> str:
    """Return a name for comparison: without case or accents, underscores for spaces."""
    decomposed = unicodedata.normalize("NFKD", text.replace("\N{MINUS SIGN}", "-"))
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return "_".join(plain.casefold().replace("_", " ").split())


def _date(local: datetime) -> str:
    return f"{local:%A}, {local.day} {local:%B %Y}"


def _abbreviation(local: datetime) -> str:
    """Return for example `CET, UTC+01:00`, or only the offset if the zone has no letters."""
    offset = _offset_name(_offset(local))
    letters = local.tzname() or ""
    return f"{letters}, {offset}" if letters.isalpha() and letters != offset else offset


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta()


def _offset_name(offset: timedelta) -> str:
    if not offset:
        return "UTC"
    minutes = int(abs(offset).total_seconds()) // 60
    return f"UTC{'-' if offset < timedelta() else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _change(local: datetime) -> str:
    """Return a phrase about the next change of the clocks, or an empty text for an offset."""
    if isinstance(local.tzinfo, timezone):
        return ""
    after = _next_change(local)
    if after is None:
        return "no clock change within a year"
    wall = after.astimezone(timezone(_offset(local)))
    changed = after.astimezone(local.tzinfo)
    return f"next change on {_date(wall)}, {wall:%H:%M} to {_abbreviation(changed)}"


def _next_change(local: datetime) -> datetime | None:
    """Return the first moment with another offset, to the minute, in UTC."""
    zone, offset = local.tzinfo, _offset(local)
    before = local.astimezone(UTC).replace(second=0, microsecond=0)
    end = before + CHANGE_WITHIN
    while _offset((after := before + timedelta(days=1)).astimezone(zone)) == offset:
        if after > end:
            return None
        before = after
    while after - before > timedelta(minutes=1):
        middle = (before + (after - before) // 2).replace(second=0, microsecond=0)
        if _offset(middle.astimezone(zone)) == offset:
            before = middle
        else:
            after = middle
    return after
