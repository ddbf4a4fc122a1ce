"""Asks Open-Meteo, the public service or an operator's own server.

Documentation: https://open-meteo.com/en/docs and https://open-meteo.com/en/docs/geocoding-api.
A refusal is `{"error": true, "reason": "…"}`, mostly with status 400, with 429 over a quota.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from cachetools import TTLCache
from pydantic import TypeAdapter, ValidationError

from tools.errors import ToolError
from tools.settings import WeatherSettings
from tools.weather.answers import Forecast, Place, Places, Problem, one_line
from tools.web.client import WebAnswer, WebClient
from tools.web.guard import AddressRefused

MAX_ANSWER_BYTES: Final = 512 * 1024
PLACES_SECONDS: Final = 24 * 60 * 60
FORECAST_SECONDS: Final = 5 * 60
CACHE_ENTRIES: Final = 64
RETRY_WITHIN_SECONDS: Final = 2.0
RETRY_PAUSE_SECONDS: Final = 0.2
MAX_REASON_CHARACTERS: Final = 200

_CURRENT: Final = (
    "temperature_2m,relative_humidity_2m,apparent_temperature,is_day,precipitation,weather_code,"
    "wind_speed_10m,wind_direction_10m,wind_gusts_10m"
)
_DAILY: Final = (
    "weather_code,temperature_2m_max,temperature_2m_min,precipitation_sum,"
    "precipitation_probability_max,sunrise,sunset"
)
_QUOTAS: Final = {
    "concurrent": "in a few seconds",
    "minutely": "in a minute",
    "hourly": "in the next hour",
    "daily": "tomorrow (UTC)",
    "monthly": "next month",
}

_PLACES: Final = TypeAdapter(Places)
_FORECAST: Final = TypeAdapter(Forecast)
_PROBLEM: Final = TypeAdapter(Problem)

Answer = TypeVar("Answer")
UnitSystem = Literal["metric", "imperial"]


@dataclass(frozen=True, slots=True)
class Units:
    """In which units numbers are asked for, and how these are written."""

    temperature: str
    speed: str
    length: str
    parameters: Mapping[str, str]


UNITS: Final[Mapping[UnitSystem, Units]] = {
    "metric": Units("°C", "km/h", "mm", MappingProxyType({})),
    "imperial": Units(
        "°F",
        "mph",
        "inches",
        MappingProxyType(
            {
                "temperature_unit": "fahrenheit",
                "wind_speed_unit": "mph",
                "precipitation_unit": "inch",
            }
        ),
    ),
}


class OpenMeteo:
    """Finds places and tells their weather; what it was told it remembers for a while.

    Args:
        web: sends the requests.
        settings: where the service is.
        now: a clock in seconds that never goes back.
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
        """Return the places of a name or postal code, the likeliest first.

        Raises:
            ToolError: the service cannot be asked, refuses, or answers nonsense.
        """
        known = self._places.get((name, count))
        if known is not None:
            return known
        answer = await self._ask(
            "The place search",
            self._settings.geocoding_url,
            {"name": name, "count": count, "language": "en", "format": "json"},
            _PLACES,
        )
        self._places[name, count] = answer.results
        return answer.results

    async def forecast(
        self, latitude: float, longitude: float, units: UnitSystem, days: int
    ) -> Forecast:
        """Return the weather now and the forecast, today included, in local time.

        Raises:
            ToolError: the service cannot be asked, refuses, or answers nonsense.
        """
        key = (f"{latitude:.4f}", f"{longitude:.4f}", units, days)
        known = self._forecasts.get(key)
        if known is not None:
            return known
        answer = await self._ask(
            "The weather service",
            self._settings.forecast_url,
            {
                "latitude": key[0],
                "longitude": key[1],
                "current": _CURRENT,
                "daily": _DAILY,
                "timezone": "auto",
                "forecast_days": days,
                **UNITS[units].parameters,
            },
            _FORECAST,
        )
        if answer.current is None and answer.daily is None:
            raise ToolError("The weather service has no data for this place.")
        self._forecasts[key] = answer
        return answer

    async def _ask(
        self,
        service: str,
        url: str,
        parameters: Mapping[str, str | int],
        shape: TypeAdapter[Answer],
    ) -> Answer:
        answer = await self._get(url, parameters)
        if answer.status != 200:
            raise ToolError(_refusal(service, answer))
        try:
            return shape.validate_json(answer.body)
        except ValidationError:
            raise ToolError(_refusal(service, answer)) from None

    async def _get(self, url: str, parameters: Mapping[str, str | int]) -> WebAnswer:
        """Ask, and once more when the failure may be a short one and came quickly."""
        started = self._now()
        try:
            answer = await self._get_once(url, parameters)
        except AddressRefused:
            raise
        except ToolError:
            if self._now() - started > RETRY_WITHIN_SECONDS:
                raise
        else:
            if answer.status < 500 or self._now() - started > RETRY_WITHIN_SECONDS:
                return answer
        await asyncio.sleep(RETRY_PAUSE_SECONDS)
        return await self._get_once(url, parameters)

    async def _get_once(self, url: str, parameters: Mapping[str, str | int]) -> WebAnswer:
        return await self._web.request(url, params=parameters, max_bytes=MAX_ANSWER_BYTES)


def _refusal(service: str, answer: WebAnswer) -> str:
    """Return a sentence about an answer that is not what was asked for."""
    reason = _reason(answer.body)
    status = answer.status
    if status == 429:
        when = next((time for word, time in _QUOTAS.items() if word in reason.lower()), "later")
        return f"{service} allows no more requests at the moment; try again {when}."
    if status >= 500:
        return f"{service} has a problem of its own (HTTP {status}); try again later."
    if status == 404:
        return f"{service} is not at its address (HTTP 404); the operator should check the setting."
    if reason:
        return f"{service} refused the request: {reason.rstrip('.')}."
    if status == 200:
        return f"{service} answered with something that cannot be read; try again later."
    return f"{service} refused the request (HTTP {status})."


def _reason(body: bytes) -> str:
    try:
        return one_line(_PROBLEM.validate_json(body).reason, MAX_REASON_CHARACTERS)
    except ValidationError:
        return ""
