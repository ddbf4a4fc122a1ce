"""`get_weather`, from Open-Meteo: the public service, or the operator's own server.

A name may belong to many places: the tool takes the service's first one in the areas that a text
names, and lists others, so that the model can ask for another one.

Documentation: https://open-meteo.com/en/docs/geocoding-api and https://open-meteo.com/en/docs.
Empty fields are left out, unknown values are null, and a search without results has no `results`.
A refusal is `{"error": true, "reason": "…"}`, mostly with status 400, or 429 over a quota.
"""

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import zip_longest
from time import monotonic
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

from cachetools import TTLCache
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    FiniteFloat,
    NaiveDatetime,
    ValidationError,
    field_validator,
)
from pydantic_core import from_json

from tools.base import InvalidArguments, Tool, ToolError
from tools.display import short_line
from tools.sandbox.errors import ToolUnavailable
from tools.schema import tool_from
from tools.settings import WeatherSettings
from tools.web.client import WebAnswer, WebClient
from tools.web.guard import AddressRefused, checked

MAX_ANSWER_BYTES: Final = 512 * 1024
PLACES_SECONDS: Final = 24 * 60 * 60
FORECAST_SECONDS: Final = 5 * 60
CACHE_ENTRIES: Final = 64
RETRY_WITHIN_SECONDS: Final = 2.0
RETRY_PAUSE_SECONDS: Final = 0.2
MAX_LINE_CHARACTERS: Final = 60
MAX_REASON_CHARACTERS: Final = 200

UnitSystem = Literal["metric", "imperial"]
_IMPERIAL: Final = {
    "temperature_unit": "fahrenheit",
    "wind_speed_unit": "mph",
    "precipitation_unit": "inch",
}

_Line = Annotated[str, AfterValidator(partial(short_line, max_characters=MAX_LINE_CHARACTERS))]
_Code = Annotated[int, Field(ge=0, le=999)] | None
_Number = FiniteFloat | None


class Place(BaseModel):
    """A place as GeoNames has it; `admin1` is the largest area within the country."""

    name: _Line
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    country: _Line = ""
    country_code: _Line = ""
    admin1: _Line = ""
    admin2: _Line = ""
    admin3: _Line = ""
    admin4: _Line = ""
    population: Annotated[int, Field(le=10**10)] = 0
    postcodes: tuple[_Line, ...] = ()


class _Places(BaseModel):
    results: tuple[Place, ...] = ()
    error: Literal[False] = False


class Current(BaseModel):
    """The weather now; `time` is local, `precipitation` is that of the last `interval` seconds."""

    time: NaiveDatetime
    interval: Annotated[int, Field(le=86_400)] | None = None
    temperature_2m: _Number = None
    relative_humidity_2m: _Number = None
    apparent_temperature: _Number = None
    is_day: int | None = None
    precipitation: _Number = None
    weather_code: _Code = None
    wind_speed_10m: _Number = None
    wind_direction_10m: _Number = None
    wind_gusts_10m: _Number = None


class Day(BaseModel):
    """The forecast of one day, in local time."""

    time: date
    weather_code: _Code = None
    temperature_2m_max: _Number = None
    temperature_2m_min: _Number = None
    precipitation_sum: _Number = None
    precipitation_probability_max: _Number = None
    sunrise: NaiveDatetime | None = None
    sunset: NaiveDatetime | None = None


class Forecast(BaseModel):
    """The weather of one place."""

    timezone: _Line = ""
    current: Current | None = None
    daily: tuple[Day, ...] = ()

    @field_validator("daily", mode="before")
    @classmethod
    def _by_day(cls, columns: object) -> object:
        """Turn columns (`{"time": […], "sunrise": […]}`) into days; a short column ends in None."""
        if not isinstance(columns, dict):
            raise ValueError("not an object of columns")  # noqa: TRY004 - pydantic reports these
        if not all(isinstance(column, list) for column in columns.values()):
            raise ValueError("a column is not a list")
        rows = zip_longest(*columns.values())
        return [dict(zip(columns, row, strict=True)) for row in rows]


Answer = TypeVar("Answer", bound=BaseModel)


class OpenMeteo:
    """Finds places and their weather, and caches both for a while.

    Args:
        web: sends the requests.
        settings: the addresses of the service.
        now: a monotonic clock in seconds.
    """

    def __init__(self, web: WebClient, settings: WeatherSettings, now: Callable[[], float]) -> None:
        self._web = web
        self._settings = settings
        self._now = now
        self._places: TTLCache[tuple[str, int], tuple[Place, ...]] = TTLCache(
            CACHE_ENTRIES, PLACES_SECONDS, now
        )
        self._forecasts: TTLCache[tuple[str, str, UnitSystem, int], Forecast] = TTLCache(
            CACHE_ENTRIES, FORECAST_SECONDS, now
        )

    async def places(self, name: str, count: int) -> tuple[Place, ...]:
        """Return the places with a name or postal code, the likeliest first.

        Raises:
            ToolError: the service cannot be reached, refuses, or answers nonsense.
        """
        if (known := self._places.get((name, count))) is not None:
            return known
        query = {"name": name, "count": str(count), "language": "en", "format": "json"}
        answer = await self._ask("The place search", self._settings.geocoding_url, query, _Places)
        self._places[name, count] = answer.results
        return answer.results

    async def forecast(
        self, latitude: float, longitude: float, units: UnitSystem, days: int
    ) -> Forecast:
        """Return the weather now and the forecast, today included; raises what `places` raises."""
        key = (f"{latitude:.4f}", f"{longitude:.4f}", units, days)
        if (known := self._forecasts.get(key)) is not None:
            return known
        query = {
            "latitude": key[0],
            "longitude": key[1],
            "current": _variables(Current),
            "daily": _variables(Day),
            "timezone": "auto",
            "forecast_days": str(days),
        }
        if units == "imperial":
            query |= _IMPERIAL
        answer = await self._ask(
            "The weather service", self._settings.forecast_url, query, Forecast
        )
        if answer.current is None and not answer.daily:
            raise ToolError("The weather service has no data for this place.")
        self._forecasts[key] = answer
        return answer

    async def _ask(
        self, service: str, url: str, query: Mapping[str, str], shape: type[Answer]
    ) -> Answer:
        answer = await self._get(url, query)
        if answer.status != 200:
            raise ToolError(_refusal(service, answer))
        try:
            return shape.model_validate_json(answer.body)
        except ValidationError:
            raise ToolError(_refusal(service, answer)) from None

    async def _get(self, url: str, query: Mapping[str, str]) -> WebAnswer:
        """Send a request, and retry once after a failure that came quickly."""
        retry_until = self._now() + RETRY_WITHIN_SECONDS
        try:
            answer = await self._web.request(url, params=query, max_bytes=MAX_ANSWER_BYTES)
        except AddressRefused:
            raise
        except ToolError:
            if self._now() > retry_until:
                raise
        else:
            if answer.status < 500 or self._now() > retry_until:
                return answer
        await asyncio.sleep(RETRY_PAUSE_SECONDS)
        return await self._web.request(url, params=query, max_bytes=MAX_ANSWER_BYTES)


def _variables(shape: type[BaseModel]) -> str:
    return ",".join(name for name in shape.model_fields if name not in {"time", "interval"})


def _refusal(service: str, answer: WebAnswer) -> str:
    """Return a sentence about an answer that does not hold the requested data."""
    status = answer.status
    try:
        reason = short_line(str(from_json(answer.body)["reason"]), MAX_REASON_CHARACTERS)
    except (ValueError, TypeError, LookupError):
        reason = ""
    if status == 429:
        return f"{service} allows no more requests at the moment. {reason or 'Try again later.'}"
    if status >= 500:
        return f"{service} has a problem of its own (HTTP {status}); try again later."
    if status == 404:
        return f"{service} is not at its address (HTTP 404); the operator should check the setting."
    if reason:
        return f"{service} refused the request: {reason.rstrip('.')}."
    if status == 200:
        return f"{service} answered with something that cannot be read; try again later."
    return f"{service} refused the request (HTTP {status})."


MAX_PLACE_CHARACTERS: Final = 100
CANDIDATES: Final = 10
CANDIDATES_IN_AREA: Final = 100  # the wanted place may be far down among its namesakes
NEAR_DEGREES: Final = 0.3  # close enough for the same weather
MAX_LISTED: Final = 6
MAX_OTHERS: Final = 3

_NUMBER: Final = r"([+-]?\d{1,3}(?:\.\d{1,20})?)\s*°?\s*"
_COORDINATES: Final = re.compile(
    _NUMBER + r"([NS]?)\s*[,;]\s*" + _NUMBER + r"([EW]?)", re.IGNORECASE
)
_COUNTRIES: Final = {
    "US": {"usa", "united states of america", "america"},
    "GB": {"uk", "great britain", "britain"},
    "AE": {"uae", "emirates"},
}
_STATES: Final = {
    "alabama": "al", "alaska": "ak", "arizona": "az", "arkansas": "ar", "california": "ca",
    "colorado": "co", "connecticut": "ct", "delaware": "de", "district of columbia": "dc",
    "florida": "fl", "georgia": "ga", "hawaii": "hi", "idaho": "id", "illinois": "il",
    "indiana": "in", "iowa": "ia", "kansas": "ks", "kentucky": "ky", "louisiana": "la",
    "maine": "me", "maryland": "md", "massachusetts": "ma", "michigan": "mi", "minnesota": "mn",
    "mississippi": "ms", "missouri": "mo", "montana": "mt", "nebraska": "ne", "nevada": "nv",
    "new hampshire": "nh", "new jersey": "nj", "new mexico": "nm", "new york": "ny",
    "north carolina": "nc", "north dakota": "nd", "ohio": "oh", "oklahoma": "ok", "oregon": "or",
    "pennsylvania": "pa", "rhode island": "ri", "south carolina": "sc", "south dakota": "sd",
    "tennessee": "tn", "texas": "tx", "utah": "ut", "vermont": "vt", "virginia": "va",
    "washington": "wa", "west virginia": "wv", "wisconsin": "wi", "wyoming": "wy",
}  # fmt: skip
"""Postal abbreviations of the United States, in the form that `folded` returns."""

Search = Callable[[str, int], Awaitable[Sequence[Place]]]
"""Returns at most so many places of a name, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place on the map; `others` are further places that the same name could mean."""

    name: str
    latitude: float
    longitude: float
    others: tuple[str, ...] = ()


async def find(text: str, search: Search) -> Spot:
    """Return the place that a text means.

    Args:
        text: coordinates, or a name or postal code, followed by areas after commas.
        search: finds places by name.

    Raises:
        InvalidArguments: the text cannot be a place.
        ToolError: the place is unknown; the text says what to try.
    """
    text = short_line(text.replace("\N{MINUS SIGN}", "-"), MAX_PLACE_CHARACTERS)
    if coordinates := _COORDINATES.fullmatch(text):
        return _spot_at(coordinates)
    name, *areas = [part for piece in text.split(",") if (part := piece.strip())] or [""]
    if not name:
        raise InvalidArguments("The place is empty: send a town, a postal code or coordinates.")
    places = await search(name, CANDIDATES_IN_AREA if areas else CANDIDATES)
    within = [place for place in places if all(_lies_in(place, area) for area in areas)]
    if places and not within:
        # The service itself knows areas in many languages, but no abbreviations.
        within = list(await search(f"{name}, {areas[0]}", CANDIDATES))
    if within:
        place, *rest = within
        others = [one for one in rest if folded(one.name) == folded(place.name)]
        far = [_label(one) for one in others if not _is_near(place, one)]
        return Spot(_label(place), place.latitude, place.longitude, tuple(far[:MAX_OTHERS]))
    if places:
        listed = "; ".join(map(_label, places[:MAX_LISTED]))
        raise ToolError(f"There is no {name} in {', '.join(areas)}. Places of that name: {listed}.")
    raise ToolError(
        f"No place named {name!r} was found. Check the spelling, leave out street and house "
        "number, or send a larger town nearby, a postal code, or coordinates such as 52.52, 13.41."
    )


def folded(name: str) -> str:
    """Return a name for comparison: without case, accents or dots, with single spaces."""
    decomposed = unicodedata.normalize("NFKD", name.replace(".", ""))
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return " ".join(re.split(r"[\W_]+", plain.casefold())).strip()


def _spot_at(coordinates: re.Match[str]) -> Spot:
    latitude, north, longitude, east = coordinates.groups()
    degrees_north = float(latitude) * (-1 if north.upper() == "S" else 1)
    degrees_east = float(longitude) * (-1 if east.upper() == "W" else 1)
    if abs(degrees_north) > 90 or abs(degrees_east) > 180:
        raise InvalidArguments(
            "Coordinates are a latitude from -90 to 90 and a longitude from -180 to 180."
        )
    return Spot(f"{degrees_north:g}, {degrees_east:g}", degrees_north, degrees_east)


def _lies_in(place: Place, area: str) -> bool:
    """Tell whether a place lies in an area: `Texas`, `TX`, `USA`, `Lamar County`, `75460`."""
    wanted, country = folded(area), place.country_code.upper()
    names = {folded(name) for name in (place.name, place.country, country, *place.postcodes)}
    if country == "US":
        names.add(_STATES.get(folded(place.admin1), ""))
    if wanted in names | _COUNTRIES.get(country, set()):
        return True
    around = filter(None, (place.admin1, place.admin2, place.admin3, place.admin4))
    # "Lamar" means Lamar County, and the other way round.
    return any(
        f"{name} ".startswith(f"{wanted} ") or f"{wanted} ".startswith(f"{name} ")
        for name in map(folded, around)
    )


def _is_near(one: Place, other: Place) -> bool:
    north, east = one.latitude - other.latitude, one.longitude - other.longitude
    return max(abs(north), abs(east)) < NEAR_DEGREES


def _label(place: Place) -> str:
    names = filter(None, (place.name, place.admin1, place.country or place.country_code))
    label = ", ".join(dict.fromkeys(names))
    return f"{label} (pop. {place.population:,})" if place.population > 0 else label


CONDITIONS: Final = {
    0: "clear sky", 1: "mainly clear", 2: "partly cloudy", 3: "overcast",
    45: "fog", 48: "depositing rime fog",
    51: "light drizzle", 53: "moderate drizzle", 55: "dense drizzle",
    56: "light freezing drizzle", 57: "dense freezing drizzle",
    61: "slight rain", 63: "moderate rain", 65: "heavy rain",
    66: "light freezing rain", 67: "heavy freezing rain",
    71: "slight snowfall", 73: "moderate snowfall", 75: "heavy snowfall", 77: "snow grains",
    80: "slight rain showers", 81: "moderate rain showers", 82: "violent rain showers",
    85: "slight snow showers", 86: "heavy snow showers",
    95: "thunderstorm", 96: "thunderstorm with slight hail", 99: "thunderstorm with heavy hail",
}  # fmt: skip
"""The WMO codes (table 4677) that Open-Meteo uses: https://open-meteo.com/en/docs"""

_COMPASS: Final = (
    "N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE",
    "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW",
)  # fmt: skip
_PUBLIC: Final = WeatherSettings()


class _Units(NamedTuple):
    temperature: str
    speed: str
    length: str


_UNITS: Final[dict[UnitSystem, _Units]] = {
    "metric": _Units("°C", "km/h", "mm"),
    "imperial": _Units("°F", "mph", "inches"),
}


@asynccontextmanager
async def open_weather(
    settings: WeatherSettings, *, now: Callable[[], float] = monotonic
) -> AsyncIterator[Tool]:
    """Provide the weather; its connections and its cache end with this context.

    Args:
        settings: the addresses of Open-Meteo.
        now: a monotonic clock in seconds.

    Raises:
        ToolUnavailable: an address in the settings is not valid.
    """
    web = WebClient(operator_urls=_operator_urls(settings))
    service = OpenMeteo(web, settings, now)

    async def get_weather(
        place: Annotated[str, Field(min_length=1, max_length=MAX_PLACE_CHARACTERS)],
        units: UnitSystem = "metric",
        days: Annotated[int, Field(ge=1, le=7)] = 3,
    ) -> str:
        """Tell the weather now and the forecast of a place.

        Args:
            place: Such as Portland, Maine; or 52.52, 13.41.
        """
        spot = await find(place, service.places)
        forecast = await service.forecast(spot.latitude, spot.longitude, units, days)
        return _report(spot, forecast, _UNITS[units], days)

    yield tool_from(get_weather, probe=partial(_probe, service, settings))


async def _probe(service: OpenMeteo, settings: WeatherSettings) -> None:
    """Ask the operator's own server once; the public one is asked only when people ask.

    Raises:
        ToolError: it does not answer as Open-Meteo does.
    """
    if settings.geocoding_url != _PUBLIC.geocoding_url:
        await service.places("Berlin", 1)
    if settings.forecast_url != _PUBLIC.forecast_url:
        await service.forecast(52.52, 13.41, "metric", 1)


def _operator_urls(settings: WeatherSettings) -> tuple[str, ...]:
    chosen = {settings.geocoding_url, settings.forecast_url}
    urls = tuple(chosen - {_PUBLIC.geocoding_url, _PUBLIC.forecast_url})
    try:
        for url in urls:
            checked(url)
    except AddressRefused as error:
        raise ToolUnavailable(f"An address of the weather service is wrong: {error}") from error
    return urls


def condition(code: int) -> str:
    """Return a WMO weather code in words."""
    return CONDITIONS.get(code, f"unknown weather code {code}")


def compass_point(degrees: float) -> str:
    """Return the nearest of 16 compass points; 0 degrees is north, 90 is east."""
    return _COMPASS[round(degrees / (360 / len(_COMPASS))) % len(_COMPASS)]


def _report(spot: Spot, forecast: Forecast, units: _Units, days: int) -> str:
    """Return the place, the weather now, and one line per day; unknown values are left out."""
    lines = [f"Weather in {spot.name}"]
    if spot.others:
        lines.append(f"Other places of that name: {'; '.join(spot.others)}")
    today = None
    if (current := forecast.current) is not None:
        today = current.time.date()
        zone = f" ({forecast.timezone})" if forecast.timezone else ""
        values = "; ".join(_now(current, units)) or "no values"
        lines.append(f"Measured at {current.time:%H:%M} local time{zone}: {values}")
    lines += (_day(day, today, units) for day in forecast.daily[:days])
    return "\n".join([*lines, "Source: Open-Meteo.com"])


def _now(current: Current, units: _Units) -> Iterator[str]:
    if current.weather_code is not None:
        yield condition(current.weather_code) + (" at night" if current.is_day == 0 else "")
    direction, minutes = current.wind_direction_10m, (current.interval or 0) // 60
    origin = "" if direction is None else f" from {compass_point(direction)}"
    within = f" in the last {minutes} minutes" if minutes > 0 else ""
    for value, text in (
        (current.temperature_2m, f"{{:g}} {units.temperature}"),
        (current.apparent_temperature, f"feels like {{:g}} {units.temperature}"),
        (current.relative_humidity_2m, "relative humidity {:g} %"),
        (current.precipitation, f"precipitation {{:g}} {units.length}{within}"),
        (current.wind_speed_10m, f"wind {{:g}} {units.speed}{origin}"),
        (current.wind_gusts_10m, f"gusts {{:g}} {units.speed}"),
    ):
        if value is not None:
            yield text.format(value)


def _day(day: Day, today: date | None, units: _Units) -> str:
    name = f"{day.time:%A}, {day.time.day} {day.time:%B}" + (" (today)" * (day.time == today))
    return f"{name}: {'; '.join(_outlook(day, units)) or 'no forecast'}"


def _outlook(day: Day, units: _Units) -> Iterator[str]:
    if day.weather_code is not None:
        yield condition(day.weather_code)
    low, high = day.temperature_2m_min, day.temperature_2m_max
    if low is not None and high is not None:
        yield f"{low:g} to {high:g} {units.temperature}"
    elif low is not None:
        yield f"at least {low:g} {units.temperature}"
    elif high is not None:
        yield f"at most {high:g} {units.temperature}"
    amount, chance = day.precipitation_sum, day.precipitation_probability_max
    if amount is not None:
        probability = "" if chance is None else f" ({chance:g} % chance)"
        yield f"precipitation {amount:g} {units.length}{probability}"
    elif chance is not None:
        yield f"{chance:g} % chance of precipitation"
    # Where the sun is up all day or not at all, the service fills in times that mean nothing.
    rise, sunset = day.sunrise, day.sunset
    if rise is None or sunset is None or rise.date() != day.time:
        return
    if timedelta() < sunset - rise < timedelta(days=1):
        yield f"sunrise {rise:%H:%M}, sunset {sunset:%H:%M}"
