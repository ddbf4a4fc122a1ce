"""DuckDuckGo's page for browsers without JavaScript, on loopback.

    async with duckduckgo_page() as duckduckgo:
        ...  # duckduckgo.url, duckduckgo.requests, duckduckgo.pages.append(...)

The pages have the structure of the real ones, with invented contents: searches by POST, links
through `/l/?uddg=`, advertisements, the question whether a human is searching.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.fakes.web_server import Asked, Connection, WebServer, answer, web_server

_FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "search"
RESULTS: Final = (_FIXTURES / "duckduckgo_results.html").read_text(encoding="utf-8")
NOTHING: Final = (_FIXTURES / "duckduckgo_nothing.html").read_text(encoding="utf-8")
CHALLENGE: Final = (_FIXTURES / "duckduckgo_challenge.html").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Page:
    """Answer of the server."""

    status: int = 200
    body: str = RESULTS


@dataclass
class DuckDuckGoPage:
    """Running server with the pages for the next requests; without any left it sends results."""

    server: WebServer
    pages: deque[Page] = field(default_factory=deque)

    @property
    def url(self) -> str:
        return self.server.url("/html")

    @property
    def requests(self) -> list[Asked]:
        return self.server.asked

    async def behave(self, connection: Connection) -> bool:
        page = self.pages.popleft() if self.pages else Page()
        return await answer(page.body.encode(), status=page.status)(connection)


@asynccontextmanager
async def duckduckgo_page() -> AsyncIterator[DuckDuckGoPage]:
    """Run the server on a free loopback port."""
    async with web_server({}) as server:
        page = DuckDuckGoPage(server)
        server.behaviours["/html"] = page.behave
        yield page
