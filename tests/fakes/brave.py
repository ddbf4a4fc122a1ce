"""Brave's Web Search API on loopback: its answers, headers and errors, as documented and as seen.

    async with brave_api() as brave:
        ...  # brave.url, brave.requests, brave.answers.append(...)

Without an answer in `answers`, who has the key gets results, who has another the error that the
real service sends. Shapes: https://api-dashboard.search.brave.com, and the issues that
`tools/web/search.py` names.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

KEY: Final = "BSA-key-that-nobody-may-see-0123456789"
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
    """One answer of the service."""

    status: int = 200
    body: str = RESULTS
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


def error(code: str, status: int, **headers: str) -> Answer:
    """Return the answer with one of Brave's errors; headers as `x_ratelimit_limit="1, 2000"`."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, json.dumps(_ERRORS[code]), names)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; header names are lower case."""

    parameters: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass
class BraveApi:
    """The running service.

    Attributes:
        requests: every one so far.
        answers: what the next requests get, in order.
        plan: the headers of an answer that names none of its own.
    """

    requests: list[Request] = field(default_factory=list)
    answers: deque[Answer] = field(default_factory=deque)
    plan: Mapping[str, str] = field(default_factory=lambda: _FREE_PLAN)
    url: str = ""

    @property
    def queries(self) -> list[str]:
        """What was searched for, in order."""
        return [request.parameters["q"] for request in self.requests]

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        self.requests.append(Request(dict(request.query), _lower(request.headers)))
        answer = self.answers.popleft() if self.answers else self._usual(request)
        return web.Response(
            status=answer.status,
            body=answer.body.encode(),
            headers=answer.headers or self.plan,
            content_type=answer.content_type,
        )

    def _usual(self, request: web.Request) -> Answer:
        if request.headers.get("X-Subscription-Token") == KEY:
            return Answer()
        return error("SUBSCRIPTION_TOKEN_INVALID", 422)


def _lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@asynccontextmanager
async def brave_api() -> AsyncIterator[BraveApi]:
    """Run the service on a free loopback port."""
    api = BraveApi()
    app = web.Application()
    app.router.add_get("/res/v1/web/search", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        api.url = f"http://127.0.0.1:{port}/res/v1/web/search"
        yield api
    finally:
        await runner.cleanup()
