"""`get_weather`: the current weather and the forecast of a place."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import date, timedelta
from functools import partial
from time import monotonic
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from tools.base import Tool
from tools.errors import ToolUnavailable
from tools.schema import tool_from
from tools.settings import WeatherSettings
from tools.weather.open_meteo import Current, Day, Forecast, OpenMeteo, UnitSystem
from tools.weather.places import MAX_PLACE_CHARACTERS, AmbiguousPlace, Spot, find
from tools.web.client import new_web_client
from tools.web.guard import AddressRefused, checked

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
    web = new_web_client(operator_urls=_operator_urls(settings))
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
        try:
            spot = await find(place, service.places)
        except AmbiguousPlace as question:
            return str(question)
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
