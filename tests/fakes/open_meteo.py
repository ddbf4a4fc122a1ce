"""Open-Meteo on loopback: geocoding and forecast, real HTTP/1.1, answers from files.

    async with open_meteo() as server:
        ...  # server.settings, server.requests, server.script(status(503), ...)

It refuses wrong parameters as the service does (https://open-meteo.com/en/docs,
https://open-meteo.com/en/docs/geocoding-api). A scripted step takes one request each, before all
else; `server.forecast` chooses the file of forecasts.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize

from tests.fakes.web_server import (
    Asked,
    Behaviour,
    Connection,
    WebServer,
    answer,
    web_server,
)
from tools.settings import WeatherSettings

FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "open_meteo"
HTML: Final = "text/html"
JSON: Final = "application/json; charset=utf-8"

_REQUIRED_COLUMNS: Final = {
    "current": {"temperature_2m", "weather_code", "wind_speed_10m", "wind_direction_10m"},
    "daily": {"weather_code", "temperature_2m_max", "temperature_2m_min", "sunrise", "sunset"},
}
_IMPERIAL: Final = {
    "temperature_unit": "fahrenheit",
    "wind_speed_unit": "mph",
    "precipitation_unit": "inch",
}
_AREAS: Final = {
    "deutschland": "Germany",
    "dc": "District of Columbia",
    "il": "Illinois",
    "me": "Maine",
    "pa": "Pennsylvania",
    "tx": "Texas",
}


def reply(
    status: int,
    body: object = b"",
    *,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    """Answer every request with this; anything but bytes is sent as JSON."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer(encoded, content_type, status=status, headers=headers)


def refusal(status: int, reason: str) -> Behaviour:
    """Refuse as the service does."""
    return reply(status, {"error": True, "reason": reason})


@dataclass(slots=True)
class OpenMeteoServer:
    """The running fake."""

    server: WebServer
    forecast: str = "forecast_metric"
    steps: list[Behaviour] = field(default_factory=list)

    @property
    def settings(self) -> WeatherSettings:
        return WeatherSettings(
            geocoding_url=self.server.url("/v1/search"),
            forecast_url=self.server.url("/v1/forecast"),
        )

    @property
    def requests(self) -> list[Asked]:
        return self.server.asked

    def script(self, *steps: Behaviour) -> None:
        """Play these, one a request, before answering properly again."""
        self.steps.extend(steps)

    async def behave(self, connection: Connection) -> bool:
        asked = self.requests[-1]
        if self.steps:
            return await self.steps.pop(0)(connection)
        proper = self._search if asked.path == "/v1/search" else self._forecast
        return await proper(asked.parameters)(connection)

    def _search(self, parameters: Mapping[str, str]) -> Behaviour:
        count = int(parameters.get("count", "10"))
        if not 1 <= count <= 100:
            return refusal(400, "Parameter count must be between 1 and 100.")
        name, area, *_ = [*parameters["name"].split(","), ""]
        found = _file(f"places_{_slug(name)}") or _file("places_none")
        places = [place for place in found.get("results", ()) if _within(place, area.strip())]
        if places:
            return reply(200, {**found, "results": places[:count]})
        return reply(200, {"generationtime_ms": 0.13756752})

    def _forecast(self, parameters: Mapping[str, str]) -> Behaviour:
        if abs(float(parameters["latitude"])) > 90:
            return refusal(
                400, f"Latitude must be in range of -90 to 90°. Given: {parameters['latitude']}."
            )
        for section, columns in _REQUIRED_COLUMNS.items():
            assert columns <= set(parameters[section].split(",")), section
        assert parameters["timezone"] == "auto"  # else the service wants one for daily values
        asked = {key: parameters[key] for key in _IMPERIAL if key in parameters}
        assert asked in ({}, _IMPERIAL)
        found = _file("forecast_imperial" if asked else self.forecast)
        assert found is not None
        days = int(parameters["forecast_days"])
        daily = {name: column[:days] for name, column in found["daily"].items()}
        return reply(200, {**found, "daily": daily})


def _slug(name: str) -> str:
    """Return the part of a file's name: New York is new_york, München munchen."""
    ascii_only = normalize("NFKD", name.strip()).encode("ascii", errors="ignore").decode()
    return "_".join(re.findall(r"\w+", ascii_only.lower()))


def _file(name: str) -> Any:
    path = FIXTURES / f"{name}.json"
    return json.loads(path.read_bytes()) if path.is_file() else None


def _within(place: Mapping[str, Any], area: str) -> bool:
    """Filter by the first area after a comma, which the service knows by several names."""
    area = _AREAS.get(area.casefold(), area).casefold()
    names = (place.get(key, "").casefold() for key in ("country", "country_code", "admin1"))
    return not area or area in names


@asynccontextmanager
async def open_meteo() -> AsyncIterator[OpenMeteoServer]:
    """Run the fake on a free port of loopback."""
    async with web_server({}) as server:
        fake = OpenMeteoServer(server)
        server.behaviours.update({"/v1/search": fake.behave, "/v1/forecast": fake.behave})
        yield fake
