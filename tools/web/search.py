"""`web_search` as a tool."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Annotated, Final, Protocol
from urllib.parse import quote

from cachetools import TTLCache
from pydantic import Field

from sandbox.policy import SandboxPolicy
from tools.base import Tool
from tools.errors import InvalidArguments, ToolUnavailable
from tools.schema import tool_from
from tools.settings import SearchProvider, WebSearchSettings
from tools.web.brave import Brave
from tools.web.client import open_web_client
from tools.web.duckduckgo import DuckDuckGo, page_reader
from tools.web.guard import AddressRefused, checked
from tools.web.search_results import SearchResult, numbered

# Brave's limits; DuckDuckGo takes a little more.
MAX_QUERY_CHARACTERS: Final = 400
MAX_QUERY_WORDS: Final = 50
MAX_QUERY_URL_CHARACTERS: Final = 1_500
"""As it stands in a URL, where most letters beyond ASCII take six characters or nine."""

REMEMBERED_SECONDS: Final = 600.0
MAX_REMEMBERED: Final = 64
_CALLS_PER_MINUTE: Final = 30

_Recent = TTLCache[tuple[str, int], str]
"""What was answered in the last minutes, by query and count."""


class SearchEngine(Protocol):
    """Whoever searches: `tools.web.brave.Brave` or `tools.web.duckduckgo.DuckDuckGo`."""

    async def search(self, query: str, count: int) -> Sequence[SearchResult]:
        """Return results, the best first; raises ToolError."""
        ...

    async def probe(self) -> None:
        """Find out whether a search can work at all; raises ToolUnavailable."""
        ...


@asynccontextmanager
async def open_web_search(
    settings: WebSearchSettings,
    *,
    now: Callable[[], float] = monotonic,
    sandboxes: SandboxPolicy | None = None,
) -> AsyncIterator[Tool]:
    """Provide the search.

    Args:
        settings: who searches, and how.
        now: a clock that never goes back, in seconds.
        sandboxes: what is demanded of those that read DuckDuckGo's pages; nothing without it.

    Raises:
        ToolUnavailable: the engine has no key, its package is not installed, its address in the
            settings can never be asked, or its sandboxes may not run here.
    """
    recent: _Recent = TTLCache(MAX_REMEMBERED, REMEMBERED_SECONDS, now)
    async with _open_engine(settings, sandboxes or SandboxPolicy()) as engine:
        yield _tool(engine, settings.max_results, recent)


@asynccontextmanager
async def _open_engine(
    settings: WebSearchSettings, sandboxes: SandboxPolicy
) -> AsyncIterator[SearchEngine]:
    async with open_web_client(operator_urls=_operator_urls(settings)) as client:
        match settings.provider:
            case SearchProvider.BRAVE:
                yield Brave(client, api_key=settings.api_key, url=settings.url)
            case SearchProvider.DUCKDUCKGO:
                sandboxes.require_walls()
                async with page_reader(sandboxes) as reader:
                    yield DuckDuckGo(client, reader, url=settings.url)


def _operator_urls(settings: WebSearchSettings) -> Sequence[str]:
    if settings.url is None:
        return ()
    try:
        checked(settings.url)
    except AddressRefused as error:
        raise ToolUnavailable(f"TOOLS__WEB_SEARCH__URL cannot be asked: {error}") from None
    return (settings.url,)


def _tool(engine: SearchEngine, max_results: int, recent: _Recent) -> Tool:
    async def web_search(
        query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)],
        count: Annotated[int | None, Field(ge=1, le=max_results)] = None,
    ) -> str:
        """Search the web for current or uncertain facts. Results are numbered, with title, link,
        age and a few lines of the page. Cite what you use by its number and link, as in [1]; read
        a whole page with web_fetch.

        Args:
            query: What to look for, in a few words.
            count: How many results; without it, as many as allowed.
        """  # noqa: D205 - the model reads the first paragraph
        query = " ".join(query.split())
        _check(query)
        count = count or max_results
        if (answer := recent.get((query, count))) is None:
            answer = numbered(await engine.search(query, count), count)
            recent[query, count] = answer
        return answer

    return tool_from(
        web_search, untrusted=True, calls_per_minute=_CALLS_PER_MINUTE, probe=engine.probe
    )


def _check(query: str) -> None:
    words = len(query.split())
    if words == 0:
        raise InvalidArguments("The query is empty; say what to look for.")
    if words > MAX_QUERY_WORDS:
        raise InvalidArguments(
            f"The query has {words} words; at most {MAX_QUERY_WORDS} are possible."
        )
    if len(quote(query)) > MAX_QUERY_URL_CHARACTERS:
        raise InvalidArguments("The query is too long; say it in fewer words.")
