"""`current_time`: what time it is in a zone of the IANA time zone database, or at an offset."""

import asyncio
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Final
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from tools.errors import InvalidArguments

MAX_ZONE_CHARACTERS: Final = 64
CHANGE_WITHIN: Final = timedelta(days=366)

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)
_OFFSETS: Final = (timedelta(hours=-12), timedelta(hours=14))
_MINUS_SIGN: Final = "\N{MINUS SIGN}"
_NEAREST: Final = 5
_NO_PLACES: Final = {"Factory", "localtime"}


async def current_time(
    zone: Annotated[str, Field(max_length=MAX_ZONE_CHARACTERS)] = "UTC",
) -> str:
    """Tell the current date, weekday and time of any time zone, and its next clock change.

    Args:
        zone: IANA name such as Europe/Berlin or America/New_York, the city of such a name (Tokyo),
            or an offset such as UTC+2. For any other place send the zone that it lies in.
    """
    # The first call reads the directory of zones from the disk.
    return await asyncio.to_thread(time_in, zone, datetime.now(UTC))


def time_in(zone: str, now: datetime) -> str:
    """Return a sentence about a moment as the clocks of a zone show it.

    Args:
        zone: a zone's name, its city, or an offset.
        now: the moment, with its own zone.

    Raises:
        InvalidArguments: no zone is called that; the text has the nearest names.
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
    """Return the zone that is meant, and its name: a `ZoneInfo`, or an offset that never changes.

    Args:
        text: a zone's name, its city, or an offset.
        now: the moment, with its own zone; decides whether zones of one name are the same.

    Raises:
        InvalidArguments: no zone is called that; the text has the nearest names.
    """
    folded = _folded(text) or "utc"
    if name := _zones().by_name.get(folded):
        return name, ZoneInfo(name)
    if offset := _OFFSET.fullmatch(folded.replace("_", "")):
        return _fixed(offset)
    names = _zones().by_city.get(folded, ())
    if names and len({_clock(ZoneInfo(name), now) for name in names}) == 1:
        return names[0], ZoneInfo(names[0])
    raise InvalidArguments(_unknown(text, folded, names))


def _fixed(offset: re.Match[str]) -> tuple[str, tzinfo]:
    difference = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    if offset[1] == "-":
        difference = -difference
    earliest, latest = _OFFSETS
    if not earliest <= difference <= latest:
        raise InvalidArguments("There is no such offset: they go from UTC-12 to UTC+14.")
    name = _offset_name(difference)
    return name, timezone(difference, name)


def _unknown(text: str, folded: str, names: tuple[str, ...]) -> str:
    if names:
        return f"{text!r} may be {' or '.join(names)}: send one of these names."
    zones = _zones()
    close = get_close_matches(folded, [*zones.by_name, *zones.by_city], n=_NEAREST)
    nearest = dict.fromkeys(zones.by_name.get(key) or zones.by_city[key][0] for key in close)
    hint = f"Similar: {', '.join(nearest)}. " if nearest else ""
    return (
        f"There is no time zone named {text!r}. {hint}"
        "Send the IANA name of the zone that the place lies in, such as Asia/Shanghai for Beijing."
    )


@dataclass(frozen=True, slots=True)
class _Zones:
    """The names there are, by their folded form; a city's name may be that of several zones."""

    by_name: Mapping[str, str]
    by_city: Mapping[str, tuple[str, ...]]


@cache
def _zones() -> _Zones:
    by_name: dict[str, str] = {}
    by_city: dict[str, tuple[str, ...]] = {}
    for name in sorted(available_timezones() - _NO_PLACES):
        by_name[_folded(name)] = name
        area, slash, city = name.rpartition("/")
        if slash and area != "Etc":
            by_city[_folded(city)] = (*by_city.get(_folded(city), ()), name)
    return _Zones(by_name, by_city)


def _folded(text: str) -> str:
    """Return a name as it is compared: no case, no accents, underscores for spaces."""
    decomposed = unicodedata.normalize("NFKD", text.replace(_MINUS_SIGN, "-"))
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return "_".join(plain.casefold().replace("_", " ").split())


def _date(local: datetime) -> str:
    return f"{local:%A}, {local.day} {local:%B %Y}"


def _abbreviation(local: datetime) -> str:
    """Return for example `CET, UTC+01:00`; where a zone has no letters, the offset alone."""
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
    """Return when the clocks change next; empty for an offset, which never does."""
    if isinstance(local.tzinfo, timezone):
        return ""
    after = _next_change(local)
    if after is None:
        return "no clock change within a year"
    wall = after.astimezone(timezone(_offset(local)))
    when = f"{_date(wall)}, {wall:%H:%M}"
    # Ireland counts its winter time as the exception (negative), so only a positive one is told.
    if (local.dst() or timedelta()) > timedelta():
        return f"daylight saving time until {when}"
    return f"next change on {when} to {_abbreviation(after)}"


def _next_change(local: datetime) -> datetime | None:
    """Return the first moment, to the minute, at which the offset is another one."""
    zone, offset = local.tzinfo, _offset(local)
    before = local.astimezone(UTC).replace(second=0, microsecond=0)
    end = before + CHANGE_WITHIN
    while _offset((after := before + timedelta(days=1)).astimezone(zone)) == offset:
        if after > end:
            return None
        before = after
    while after - before > timedelta(minutes=1):
        middle = before + (after - before) // 2
        middle = middle.replace(second=0, microsecond=0)
        if _offset(middle.astimezone(zone)) == offset:
            before = middle
        else:
            after = middle
    return after.astimezone(zone)


def _clock(zone: tzinfo, now: datetime) -> tuple[timedelta, datetime | None]:
    """Return what makes two zones tell the same time: the offset and its next change."""
    local = now.astimezone(zone)
    after = _next_change(local)
    return _offset(local), after and after.astimezone(UTC)
