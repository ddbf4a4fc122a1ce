"""`get_weather`, from Open-Meteo: the public service, or the operator's own server.

A name may belong to many places: the tool takes the service's first one and lists others, so that
the model can ask for another one. The service knows the area after a comma: a country or a large
part of one, in many languages and as an abbreviation.

Documentation: https://open-meteo.com/en/docs/geocoding-api and https://open-meteo.com/en/docs.
Empty fields are left out, unknown values are null, and a search without results has no `results`.
A refusal is `{"error": true, "reason": "…"}`, mostly with status 400, or 429 over a quota.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import zip_longest
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

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
CANDIDATES: Final = 10
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
_Number = Annotated[FiniteFloat, AfterValidator(lambda value: value + 0.0)] | None  # no -0.0


class Place(BaseModel):
    """A place as GeoNames has it; `admin1` is the largest area within the country."""

    name: _Line
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    country: _Line = ""
    country_code: _Line = ""
    admin1: _Line = ""
    population: Annotated[int, Field(le=10**10)] = 0


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


@dataclass(frozen=True, slots=True)
class Spot:
    """A place on the map; `others` are further places that the same name could mean."""

    name: str
    latitude: float
    longitude: float
    others: tuple[str, ...] = ()


Answer = TypeVar("Answer", bound=BaseModel)


async def _places(
    web: WebClient, settings: WeatherSettings, name: str, count: int = CANDIDATES
) -> tuple[Place, ...]:
    """Return the places with a name or postal code, the likeliest first; or ToolError."""
    query = {"name": name, "count": str(count), "language": "en", "format": "json"}
    found = await _ask(web, "The place search", settings.geocoding_url, query, _Places)
    return found.results


async def _forecast(
    web: WebClient, settings: WeatherSettings, spot: Spot, units: UnitSystem, days: int
) -> Forecast:
    """Return the weather now and the forecast, today included; or ToolError."""
    query = {
        "latitude": f"{spot.latitude:.4f}",
        "longitude": f"{spot.longitude:.4f}",
        "current": _variables(Current),
        "daily": _variables(Day),
        "timezone": "auto",
        "forecast_days": str(days),
    }
    if units == "imperial":
        query |= _IMPERIAL
    forecast = await _ask(web, "The weather service", settings.forecast_url, query, Forecast)
    if forecast.current is None and not forecast.daily:
        raise ToolError("The weather service has no data for this place.")
    return forecast


async def _ask(
    web: WebClient, service: str, url: str, query: Mapping[str, str], shape: type[Answer]
) -> Answer:
    place = query.get("name") or f"{query['latitude']}, {query['longitude']}"
    answer = await web.request(
        url, purpose=("place", place), params=query, max_bytes=MAX_ANSWER_BYTES
    )
    if answer.status != 200:
        raise ToolError(_refusal(service, answer))
    try:
        return shape.model_validate_json(answer.body)
    except ValidationError:
        raise ToolError(_refusal(service, answer)) from None


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
NEAR_DEGREES: Final = 0.3  # close enough for the same weather
MAX_LISTED: Final = 6
MAX_OTHERS: Final = 3

_NUMBER: Final = r"([+-]?\d{1,3}(?:\.\d{1,20})?)\s*°?\s*"
_COORDINATES: Final = re.compile(
    _NUMBER + r"([NS]?)\s*[,;]\s*" + _NUMBER + r"([EW]?)", re.IGNORECASE
)
Search = Callable[[str], Awaitable[Sequence[Place]]]
"""Returns places of a name, the likeliest first."""


async def find(text: str, search: Search) -> Spot:
    """Return the place that a text means; ToolError says what to try for an unknown one.

    Args:
        text: coordinates, or a name or postal code, perhaps with an area after a comma.
        search: finds places by name.
    """
    text = short_line(text.replace("\N{MINUS SIGN}", "-"), MAX_PLACE_CHARACTERS)
    if coordinates := _COORDINATES.fullmatch(text):
        return _spot_at(coordinates)
    name, comma, area = (part.strip() for part in text.partition(","))
    if not name:
        raise InvalidArguments("The place is empty: send a town, a postal code or coordinates.")
    if places := await search(text):
        place, *rest = places
        others = [one for one in rest if one.name.casefold() == place.name.casefold()]
        far = [_label(one) for one in others if not _is_near(place, one)]
        return Spot(_label(place), place.latitude, place.longitude, tuple(far[:MAX_OTHERS]))
    if comma and (places := await search(name)):
        listed = "; ".join(map(_label, places[:MAX_LISTED]))
        raise ToolError(f"There is no {name} in {area}. Places of that name: {listed}.")
    raise ToolError(
        f"No place named {name!r} was found. Check the spelling, leave out street and house "
        "number, or send a larger town nearby, a postal code, or coordinates such as 52.52, 13.41."
    )


def _spot_at(coordinates: re.Match[str]) -> Spot:
    latitude, north, longitude, east = coordinates.groups()
    degrees_north = float(latitude) * (-1 if north.upper() == "S" else 1)
    degrees_east = float(longitude) * (-1 if east.upper() == "W" else 1)
    if abs(degrees_north) > 90 or abs(degrees_east) > 180:
        raise InvalidArguments(
            "Coordinates are a latitude from -90 to 90 and a longitude from -180 to 180."
        )
    return Spot(f"{degrees_north:g}, {degrees_east:g}", degrees_north, degrees_east)


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
async def open_weather(settings: WeatherSettings) -> AsyncIterator[Tool]:
    """Provide the weather; ToolUnavailable if an address in the settings is not valid."""
    web = WebClient(operator_urls=_operator_urls(settings))

    async def get_weather(
        place: Annotated[str, Field(min_length=1, max_length=MAX_PLACE_CHARACTERS)],
        units: UnitSystem = "metric",
        days: Annotated[int, Field(ge=1, le=7)] = 3,
    ) -> str:
        """Tell the weather now and the daily forecast of a place.

        If several places have the name, the result lists them: check that it is the right one.

        Args:
            place: With region or country: Springfield, Illinois; or 52.52, 13.41.
            units: Default metric.
            days: 1 to 7, counting today. Default 3.
        """
        spot = await find(place, partial(_places, web, settings))
        forecast = await _forecast(web, settings, spot, units, days)
        return _report(spot, forecast, _UNITS[units], days)

    yield tool_from(get_weather, probe=partial(_probe, web, settings))


async def _probe(web: WebClient, settings: WeatherSettings) -> None:
    """Ask the operator's own server once; the public one is asked only when people ask."""
    if settings.geocoding_url != _PUBLIC.geocoding_url:
        await _places(web, settings, "Berlin", 1)
    if settings.forecast_url != _PUBLIC.forecast_url:
        await _forecast(web, settings, Spot("Berlin", 52.52, 13.41), "metric", 1)


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
