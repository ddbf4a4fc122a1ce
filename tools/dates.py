"""`date_time`: the clock of any zone, and calendar arithmetic, which models get wrong."""

import asyncio
import re
import unicodedata
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import cache
from itertools import chain, combinations
from typing import Annotated, Final
from zoneinfo import ZoneInfo, available_timezones

import airportsdata
from dateutil.relativedelta import relativedelta
from pydantic import Field

from tools.base import InvalidArguments

MAX_ZONE_CHARACTERS: Final = 64

_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)
_NEAREST: Final = 5
_FURTHER_CITIES: Final = {
    "Africa/Cairo": "القاهرة kairo", "Africa/Johannesburg": "pretoria",
    "America/Havana": "la_habana", "America/Mexico_City": "ciudad_de_méxico",
    "America/New_York": "brooklyn nueva_york", "America/Toronto": "montreal",
    "Asia/Baghdad": "بغداد", "Asia/Beirut": "بيروت", "Asia/Damascus": "دمشق",
    "Asia/Dubai": "دبي", "Asia/Hong_Kong": "香港", "Asia/Jakarta": "bandung",
    "Asia/Jerusalem": "القدس ירושלים תל_אביב", "Asia/Karachi": "rawalpindi",
    "Asia/Kolkata": "bengaluru bombay delhi surat दिल्ली मुंबई", "Asia/Riyadh": "mecca الرياض",
    "Asia/Seoul": "incheon 서울", "Asia/Shanghai": "canton peking pekín pékin 上海 北京",
    "Asia/Singapore": "singapur singapour 新加坡", "Asia/Taipei": "台北",
    "Asia/Tehran": "تهران", "Asia/Tokyo": "kawasaki kyoto yokohama tokio 東京 大阪 京都",
    "Europe/Amsterdam": "the_hague den_haag", "Europe/Athens": "αθήνα athina athen atenas",
    "Europe/Belgrade": "beograd београд belgrad", "Europe/Berlin": "bonn köln münchen берлин",
    "Europe/Brussels": "brüssel bruxelles brussel antwerpen", "Europe/Bucharest": "bucurești",
    "Europe/Copenhagen": "københavn kopenhagen", "Europe/Istanbul": "стамбул",
    "Europe/Kyiv": "київ киев kiew", "Europe/Lisbon": "lisboa lissabon lisbonne",
    "Europe/London": "londres londra лондон", "Europe/Madrid": "seville sevilla",
    "Europe/Minsk": "минск", "Europe/Moscow": "saint_petersburg москва санкт-петербург moskau",
    "Europe/Paris": "париж parigi", "Europe/Prague": "praha prag praga",
    "Europe/Riga": "рига rīga", "Europe/Rome": "turin roma rom milano mailand napoli neapel",
    "Europe/Sofia": "софия", "Europe/Tallinn": "таллин", "Europe/Vienna": "wien вена vienne",
    "Europe/Vilnius": "вильнюс wilna", "Europe/Warsaw": "warszawa warschau варшава kraków",
    "Europe/Zurich": "basel lausanne genève genf bern",
}  # fmt: skip
"""Large cities without an airport of their name, and names in the languages of their people."""
_NO_PLACES: Final = {"Factory", "localtime"}


def time_in(zone: str, now: datetime) -> str:
    """Return a sentence with the local time of a zone; raises what `find_zone` raises."""
    name, found = find_zone(zone, now)
    local = now.astimezone(found)
    offset = _offset_name(_offset(local))
    more = "" if offset == name else f" ({offset})"
    return (
        f"{local:%A}, {local.day} {local:%B %Y}, {local:%H:%M:%S} in {name}{more}. "
        f"ISO 8601: {local.isoformat(timespec='seconds')}"
    )


def find_zone(text: str, now: datetime) -> tuple[str, tzinfo]:
    """Return a zone, by its name, city or offset, and its name; InvalidArguments if unknown.

    Args:
        now: zones with one city's name count as the same if their clocks agree now.
    """
    folded = _folded(text) or "utc"
    by_name, by_city = _zones()
    if name := by_name.get(folded):
        return name, ZoneInfo(name)
    if offset := _OFFSET.fullmatch(folded.replace("_", "")):
        return _fixed(offset)
    names = by_city.get(folded) or _zones_of_large_city(folded)
    if len({_offset(now.astimezone(ZoneInfo(name))) for name in names}) == 1:
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


def names_zone(text: str, name: str) -> bool:
    """Tell whether a text has the name of a zone or of one of its cities."""
    words = _WORD.findall(_folded(text[:MAX_TEXT_CHARACTERS]).replace("_", " "))
    by_name, by_city = _zones()
    cities = _large_cities()
    for first, last in combinations(range(len(words) + 1), 2):
        if last - first > MAX_WORDS_OF_A_CITY:
            continue
        place = "_".join(words[first:last])
        if name in (by_name.get(place), *by_city.get(place, ()), *cities.get(place, ())):
            return True
    return False


def _fixed(offset: re.Match[str]) -> tuple[str, tzinfo]:
    difference = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    if offset[1] == "-":
        difference = -difference
    if not timedelta(hours=-12) <= difference <= timedelta(hours=14):
        raise InvalidArguments("There is no such offset: they go from UTC-12 to UTC+14.")
    name = _offset_name(difference)
    return name, timezone(difference, name)


MAX_TEXT_CHARACTERS: Final = 500
MAX_WORDS_OF_A_CITY: Final = 3
_WORD: Final = re.compile(r"\w+")


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


def _zones_of_large_city(folded: str) -> tuple[str, ...]:
    """Return the zones of the cities of a name, or else of those with all of its words."""
    cities = _large_cities()
    if folded in cities:
        return tuple(sorted(cities[folded]))
    words = set(folded.split("_"))
    found = (zones for name, zones in cities.items() if words <= set(name.split("_")))
    return tuple(sorted(set(chain.from_iterable(found))))


@cache
def _large_cities() -> dict[str, set[str]]:
    """Return the zones of large cities by their folded names; nearly all have an airport."""
    cities: dict[str, set[str]] = {}
    for airport in airportsdata.load("IATA").values():
        for name in re.split(r"[/(),]", airport["city"]):
            if (folded := _folded(name.replace("-", " "))) and airport["tz"]:
                cities.setdefault(folded, set()).add(airport["tz"])
    for zone, names in _FURTHER_CITIES.items():
        cities |= {_folded(name): {zone} for name in names.split()}
    return cities


def _folded(text: str) -> str:
    """Return a name for comparison: without case or accents, underscores for spaces."""
    decomposed = unicodedata.normalize("NFKD", text.replace("\N{MINUS SIGN}", "-"))
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return "_".join(plain.casefold().replace("_", " ").split())


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta()


def _offset_name(offset: timedelta) -> str:
    if not offset:
        return "UTC"
    minutes = int(abs(offset).total_seconds()) // 60
    return f"UTC{'-' if offset < timedelta() else '+'}{minutes // 60:02}:{minutes % 60:02}"


MAX_DATE_CHARACTERS: Final = 40
MAX_CHANGE_CHARACTERS: Final = 100
MAX_DIGITS: Final = 8

_OUT_OF_RANGE: Final = "The calendar has the years 1 to 9999."
_DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}
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
    zone: Annotated[str, Field(max_length=MAX_ZONE_CHARACTERS)] = "",
    *,
    home: str = "UTC",
) -> str:
    """Tell the time in a zone, a date plus or minus some time, or the span between two dates.

    Args:
        start: now (default), today, tomorrow, or ISO 8601.
        add: 1 month -2 days; 90 days.
        until: Date to count to.
        zone: IANA name such as Asia/Tokyo, a city, or UTC+2. Default: the person's.
    """
    # The first call reads the directory of zones from the disk.
    return await asyncio.to_thread(answer, start, add, until, zone or home, datetime.now(UTC))


def answer(start: str, add: str, until: str, zone: str, now: datetime) -> str:
    """Answer a call of `date_time` at a moment; InvalidArguments says why it cannot."""
    if start.strip().lower() in {"", "now"} and not add.strip() and not until.strip():
        return time_in(zone, now)
    local = now.astimezone(find_zone(zone, now)[1])
    try:
        moment = _moment(start, local) + change(add)
    except (ValueError, OverflowError):
        raise InvalidArguments(_OUT_OF_RANGE) from None
    if not until.strip():
        return _shown(moment)
    end = _moment(until, local)
    if start.strip().lower() in {"", "now"} and not add.strip() and not isinstance(end, datetime):
        moment = local.date()  # whole days
    return difference(moment, end)


def change(text: str) -> relativedelta:
    """Return an amount of time such as `1 year 2 months -3 days`; a sign holds for one number."""
    amounts: dict[str, int] = {}
    rest = text.strip().lower()
    while rest:
        found = _AMOUNT.match(rest)
        unit = _UNITS.get(found[3]) if found else None
        if found is None or unit is None:
            raise InvalidArguments(
                "add is a number of years, months, weeks, days, hours, minutes, such as 90 days."
            )
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
    if wanted == "now":
        return today
    if wanted in _DAYS:
        return today.date() + timedelta(days=_DAYS[wanted])
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
        return (found.astimezone(now.tzinfo) if found.tzinfo else found).replace(tzinfo=None)
    except OverflowError:
        raise InvalidArguments(_OUT_OF_RANGE) from None


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
