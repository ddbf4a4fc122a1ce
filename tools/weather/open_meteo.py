"""Client of Open-Meteo: the public service, or the operator's own server.

Documentation: https://open-meteo.com/en/docs/geocoding-api and https://open-meteo.com/en/docs.
Empty fields are left out, unknown values are null, and a search without results has no `results`.
A refusal is `{"error": true, "reason": "…"}`, mostly with status 400, or 429 over a quota.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from itertools import zip_longest
from typing import Annotated, Final, Literal, TypeVar

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

from tools.display import short_line
from tools.errors import ToolError
from tools.settings import WeatherSettings
from tools.web.client import WebAnswer, WebClient
from tools.web.guard import AddressRefused

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

    id: int
    name: _Line
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    feature_code: str = ""
    country: _Line = ""
    country_code: _Line = ""
    country_id: int | None = None
    admin1: _Line = ""
    admin1_id: int | None = None
    admin2: _Line = ""
    admin2_id: int | None = None
    admin3: _Line = ""
    admin3_id: int | None = None
    admin4: _Line = ""
    admin4_id: int | None = None
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


class _Problem(BaseModel):
    reason: str


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
        reason = short_line(_Problem.model_validate_json(answer.body).reason, MAX_REASON_CHARACTERS)
    except ValidationError:
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
