"""Brave's Web Search API on loopback: its answers, headers and errors, as documented and as seen.

    async with brave_api() as brave:
        ...  # brave.url, brave.requests, brave.answers.append(...)

If `answers` is empty, requests with the right key get results, others the error of the real
service. Shapes: https://api-dashboard.search.brave.com, and the issues that
`tools/web/search.py` names.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.fakes.web_server import Asked, Connection, WebServer, answer, web_server

KEY: Final = "BSA-key-that-nobody-may-see-0123456789"
_PATH: Final = "/res/v1/web/search"
_FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "search"
RESULTS: Final = (_FIXTURES / "brave_web.json").read_text(encoding="utf-8")
NOTHING: Final = (_FIXTURES / "brave_nothing.json").read_text(encoding="utf-8")
_ERRORS: Final[Mapping[str, Any]] = json.loads(
    (_FIXTURES / "brave_errors.json").read_text(encoding="utf-8")
)
_FREE_PLAN: Final = {
    "X-RateLimit-Limit": "1, 2000",
    "X-RateLimit-Policy": "1;w=1, 2000;w=2592000",
    "X-RateLimit-Remaining": "0, 1977",
    "X-RateLimit-Reset": "1, 389223",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the service."""

    status: int = 200
    body: str = RESULTS
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def error(code: str, status: int, **headers: str) -> Answer:
    """Return the answer with one of Brave's errors; headers as `x_ratelimit_limit="1, 2000"`."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(_ERRORS[code]), names)


@dataclass
class BraveApi:
    """The running service, with the answers that the next requests get, in order."""

    server: WebServer
    answers: deque[Answer] = field(default_factory=deque)

    @property
    def url(self) -> str:
        return self.server.url(_PATH)

    @property
    def requests(self) -> list[Asked]:
        return self.server.asked

    async def behave(self, connection: Connection) -> bool:
        known = self.requests[-1].headers.get("x-subscription-token") == KEY
        usual = Answer() if known else error("SUBSCRIPTION_TOKEN_INVALID", 422)
        found = self.answers.popleft() if self.answers else usual
        headers = found.headers or _FREE_PLAN
        send = answer(found.body.encode(), found.content_type, status=found.status, headers=headers)
        return await send(connection)


@asynccontextmanager
async def brave_api() -> AsyncIterator[BraveApi]:
    """Run the service on a free loopback port."""
    async with web_server({}) as server:
        api = BraveApi(server)
        server.behaviours[_PATH] = api.behave
        yield api
