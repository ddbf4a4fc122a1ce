"""`get_weather` as a tool."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Annotated

from pydantic import Field

from tools.base import Tool
from tools.errors import ToolUnavailable
from tools.schema import tool_from
from tools.settings import WeatherSettings
from tools.weather.open_meteo import UNITS, OpenMeteo, UnitSystem
from tools.weather.places import MAX_PLACE_CHARACTERS, AmbiguousPlace, find
from tools.weather.report import report
from tools.web.client import open_web_client
from tools.web.guard import AddressRefused, checked


@asynccontextmanager
async def open_weather(
    settings: WeatherSettings, *, now: Callable[[], float] = monotonic
) -> AsyncIterator[Tool]:
    """Provide the weather; its connections and what it remembers end with this.

    Args:
        settings: where Open-Meteo is.
        now: a clock in seconds that never goes back.

    Raises:
        ToolUnavailable: an address in the settings is not valid.
    """
    async with open_web_client(operator_urls=_operator_urls(settings)) as web:
        service = OpenMeteo(web, settings, now)

        async def get_weather(
            place: Annotated[str, Field(min_length=1, max_length=MAX_PLACE_CHARACTERS)],
            units: UnitSystem = "metric",
            days: Annotated[int, Field(ge=1, le=7)] = 3,
        ) -> str:
            """Tell the current weather and the forecast of a place, in its local time.

            Args:
                place: A town or region; where its name is common with region or country behind a
                    comma (Portland, Maine). Or a postal code with country, or coordinates such
                    as 52.52, 13.41.
                units: metric (°C, km/h, mm) or imperial (°F, mph, inches).
                days: Days of the forecast, today included.
            """
            try:
                spot = await find(place, service.places)
            except AmbiguousPlace as question:
                return str(question)
            forecast = await service.forecast(spot.latitude, spot.longitude, units, days)
            return report(spot, forecast, UNITS[units], days)

        yield tool_from(get_weather, probe=partial(_probe, service, settings))


async def _probe(service: OpenMeteo, settings: WeatherSettings) -> None:
    """Ask an operator's own server once; the public one is asked only when people ask.

    Raises:
        ToolError: it does not answer as Open-Meteo does.
    """
    public = WeatherSettings()
    if settings.geocoding_url != public.geocoding_url:
        await service.places("Berlin", 1)
    if settings.forecast_url != public.forecast_url:
        await service.forecast(52.52, 13.41, "metric", 1)


def _operator_urls(settings: WeatherSettings) -> tuple[str, ...]:
    """Return the addresses that are not those of the public service."""
    public = WeatherSettings()
    chosen = {settings.geocoding_url, settings.forecast_url}
    urls = tuple(chosen - {public.geocoding_url, public.forecast_url})
    try:
        for url in urls:
            checked(url)
    except AddressRefused as error:
        raise ToolUnavailable(f"An address of the weather service is wrong: {error}") from error
    return urls
