"""`web_search` with a SearXNG of one's own, and the search engine without any setting."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from tests.fakes.web_server import WebServer, answer, web_server
from tools.base import Caller, ToolError
from tools.sandbox.errors import ToolUnavailable
from tools.settings import WebSearchSettings
from tools.web.search import open_web_search

PAGE = {
    "query": "night trains",
    "results": [
        {
            "url": "https://trains.example/",
            "title": "Night trains",
            "content": "All of them.",
            "publishedDate": "2026-11-20T00:00:00",
        },
        {"title": "no address"},
        {"url": "javascript:alert(1)", "title": "no page"},
        {"url": "https://diary.example/", "title": "", "content": None},
    ],
}


@asynccontextmanager
async def searxng(
    page: object = PAGE, *, status: int = 200, kind: str = "application/json"
) -> AsyncIterator[WebServer]:
    body = json.dumps(page).encode()
    async with web_server({"/search": answer(body, kind, status=status)}) as server:
        yield server


async def searched(server: WebServer) -> str:
    settings = WebSearchSettings(provider="searxng", url=server.url(""))
    async with open_web_search(settings) as tool:
        found = await tool.run(tool.parse('{"query": "night trains"}'), Caller("someone"))
    assert isinstance(found, str)
    return found


async def test_searxng_is_asked_for_json_and_its_results_are_numbered() -> None:
    async with searxng() as server:
        assert await searched(server) == (
            "[1] Night trains — https://trains.example/ (2026-11-20)\n    All of them.\n"
            "[2] diary.example — https://diary.example/"
        )
        assert server.asked[0].parameters == {
            "q": "night trains",
            "format": "json",
            "safesearch": "1",
        }


@pytest.mark.parametrize(
    ("status", "kind", "error", "words"),
    [
        (403, "text/html", ToolUnavailable, "add json to search.formats"),
        (429, "text/html", ToolError, "try again in a minute"),
        (502, "text/html", ToolError, "HTTP 502"),
        (200, "text/html", ToolError, "something else than search results"),
    ],
)
async def test_failures_of_searxng_say_what_to_do(
    status: int, kind: str, error: type[Exception], words: str
) -> None:
    async with searxng("a page", status=status, kind=kind) as server:
        with pytest.raises(error, match=words):
            await searched(server)


async def test_searxng_needs_an_address() -> None:
    with pytest.raises(ToolUnavailable, match="TOOLS__WEB_SEARCH__URL"):
        async with open_web_search(WebSearchSettings(provider="searxng")):
            pass


def test_without_a_provider_a_key_decides_for_brave_or_duckduckgo() -> None:
    assert WebSearchSettings().engine == "duckduckgo"
    assert WebSearchSettings(api_key=SecretStr("key")).engine == "brave"
    assert WebSearchSettings(provider="searxng", api_key=SecretStr("key")).engine == "searxng"
