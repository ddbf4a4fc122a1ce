"""Open-Meteo on loopback: geocoding and forecast, real HTTP/1.1, answers from files.

    async with open_meteo() as server:
        ...  # server.settings, server.requests, server.script(status(503), ...)

It refuses wrong parameters as the service does (https://open-meteo.com/en/docs,
https://open-meteo.com/en/docs/geocoding-api). A scripted step takes one request each, before all
else; `server.forecast` chooses the file of forecasts.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import parse_qsl, urlsplit

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


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    path: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes over the wire; `length` may promise more than the body holds."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None

    def encoded(self) -> bytes:
        headers = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body) if self.length is None else self.length),
            "Connection": "close",
            **self.headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        phrase = HTTPStatus(self.status).phrase
        return f"HTTP/1.1 {self.status} {phrase}\r\n{lines}\r\n".encode() + self.body


Step = Callable[[Request], Awaitable[Reply | None]]
"""Answers one request; None breaks the connection."""


def reply(
    status: int,
    body: object = b"",
    *,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
    length: int | None = None,
) -> Step:
    """Answer with this, whatever was asked; what is not bytes is sent as JSON."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def step(_: Request) -> Reply:
        return Reply(status, encoded, content_type, headers or {}, length)

    return step


def refusal(status: int, reason: str) -> Step:
    """Refuse as the service does."""
    return reply(status, {"error": True, "reason": reason})


async def hang_up(_: Request) -> None:
    """Break the connection without an answer."""


@dataclass(slots=True)
class OpenMeteoServer:
    """The running fake."""

    settings: WeatherSettings
    requests: list[Request] = field(default_factory=list)
    forecast: str = "forecast_metric"
    steps: list[Step] = field(default_factory=list)

    def script(self, *steps: Step) -> None:
        """Play these, one a request, before answering properly again."""
        self.steps.extend(steps)

    def asked(self, path: str) -> list[Request]:
        """Return the requests for one of the two services."""
        return [request for request in self.requests if request.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            target = urlsplit(head.split(" ")[1])
            request = Request(target.path, dict(parse_qsl(target.query, keep_blank_values=True)))
            self.requests.append(request)
            answer = await (self.steps.pop(0) if self.steps else self._proper)(request)
            if answer is not None:
                writer.write(answer.encoded())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            writer.close()

    async def _proper(self, request: Request) -> Reply:
        match request.path:
            case "/v1/search":
                return self._search(request.parameters)
            case "/v1/forecast":
                return self._forecast(request.parameters)
        return Reply(404, b'{"error":true,"reason":"Not Found"}')

    def _search(self, parameters: Mapping[str, str]) -> Reply:
        count = int(parameters.get("count", "10"))
        if not 1 <= count <= 100:
            return _refused("Parameter count must be between 1 and 100.")
        name, area, *_ = [*parameters["name"].split(","), ""]
        found = _file(f"places_{_slug(name)}") or _file("places_none")
        places = [place for place in found.get("results", ()) if _within(place, area.strip())]
        if places:
            return _ok({**found, "results": places[:count]})
        return _ok({"generationtime_ms": 0.13756752})

    def _forecast(self, parameters: Mapping[str, str]) -> Reply:
        if abs(float(parameters["latitude"])) > 90:
            return _refused(
                f"Latitude must be in range of -90 to 90°. Given: {parameters['latitude']}."
            )
        for section, columns in _REQUIRED_COLUMNS.items():
            assert columns <= set(parameters[section].split(",")), section
        assert parameters["timezone"] == "auto"  # else the service wants one for daily values
        asked = {key: parameters[key] for key in _IMPERIAL if key in parameters}
        assert asked in ({}, _IMPERIAL)
        answer = _file("forecast_imperial" if asked else self.forecast)
        assert answer is not None
        days = int(parameters["forecast_days"])
        daily = {name: column[:days] for name, column in answer["daily"].items()}
        return _ok({**answer, "daily": daily})


def _slug(name: str) -> str:
    """Return the part of a file's name: New York is new_york, München munchen."""
    ascii_only = normalize("NFKD", name.strip()).encode("ascii", errors="ignore").decode()
    return "_".join(re.findall(r"\w+", ascii_only.lower()))


def _ok(body: object) -> Reply:
    return Reply(200, json.dumps(body, ensure_ascii=False).encode())


def _refused(reason: str) -> Reply:
    return Reply(400, json.dumps({"error": True, "reason": reason}).encode())


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
    fake = OpenMeteoServer(WeatherSettings())
    async with await asyncio.start_server(fake.serve, "127.0.0.1", 0) as listener:
        host, port = listener.sockets[0].getsockname()[:2]
        base = f"http://{host}:{port}/v1"
        fake.settings = WeatherSettings(
            geocoding_url=f"{base}/search", forecast_url=f"{base}/forecast"
        )
        yield fake
