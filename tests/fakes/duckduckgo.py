"""DuckDuckGo's page for browsers without JavaScript, on loopback.

    async with duckduckgo_page() as duckduckgo:
        ...  # duckduckgo.url, duckduckgo.requests, duckduckgo.pages.append(...)

The pages have the structure of the real ones, with invented contents: what is asked by POST, links
that go through `/l/?uddg=`, advertisements, the question whether a human is searching.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiohttp import web

_FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "search"
RESULTS: Final = (_FIXTURES / "duckduckgo_results.html").read_text(encoding="utf-8")
NOTHING: Final = (_FIXTURES / "duckduckgo_nothing.html").read_text(encoding="utf-8")
CHALLENGE: Final = (_FIXTURES / "duckduckgo_challenge.html").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Page:
    """One answer."""

    status: int = 200
    body: str = RESULTS


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; header names are lower case."""

    form: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass
class DuckDuckGoPage:
    """The running server.

    Attributes:
        requests: every one so far.
        pages: what the next requests get, in order; results when there is none left.
    """

    requests: list[Request] = field(default_factory=list)
    pages: deque[Page] = field(default_factory=deque)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append(Request(form, headers))
        page = self.pages.popleft() if self.pages else Page()
        return web.Response(
            status=page.status, body=page.body.encode(), content_type="text/html", charset="UTF-8"
        )


@asynccontextmanager
async def duckduckgo_page() -> AsyncIterator[DuckDuckGoPage]:
    """Run the server on a free loopback port."""
    page = DuckDuckGoPage()
    app = web.Application()
    app.router.add_post("/html", page.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        page.url = f"http://127.0.0.1:{runner.addresses[0][1]}/html"
        yield page
    finally:
        await runner.cleanup()
