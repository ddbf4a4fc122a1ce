"""`web_search`: a search by Brave, DuckDuckGo or SearXNG, and its results as text for the model.

Brave: https://api-dashboard.search.brave.com, app/documentation/web-search/query (limits of a
query), …/responses (fields), documentation/guides/rate-limiting (the X-RateLimit headers),
api-reference (codes of errors). The documentation has a list of `errors`; the service answers one
`error`: https://github.com/egoist/chatwise-releases/issues/1296. A wrong key is a 422:
https://github.com/nearai/ironclaw/issues/2780.

DuckDuckGo has no API, so we read its page for browsers without JavaScript. The package ddgs
(https://github.com/deedy5/ddgs) builds the request and reads the page. Our own client sends it,
because the client of ddgs has neither the guard nor a bound on bytes. DuckDuckGo often asks
programs whether a human is searching: HTTP 202 or 200 with a page about an "anomaly". It asks
clients that look like a browser least: https://github.com/zeroclaw-labs/zeroclaw/pull/6625,
https://github.com/can1357/oh-my-pi/pull/3800.

SearXNG: https://docs.searxng.org/dev/search_api (JSON has to be among the formats of its settings;
otherwise it answers 403) and https://docs.searxng.org/admin/searx.limiter (429).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from html import unescape
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from time import monotonic
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote, urlsplit

from cachetools import TTLCache
from pydantic import AliasChoices, BaseModel, FailFast, Field, TypeAdapter, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import from_json

from tools.base import InvalidArguments, Tool, ToolError
from tools.display import short_line
from tools.sandbox.errors import ToolUnavailable, WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy
from tools.schema import tool_from
from tools.settings import WebSearchSettings
from tools.web.client import WebAnswer, WebClient
from tools.web.guard import MAX_URL, AddressRefused, checked

# Brave's limits; DuckDuckGo accepts a little more.
MAX_QUERY_CHARACTERS: Final = 400
MAX_QUERY_WORDS: Final = 50
MAX_QUERY_URL_CHARACTERS: Final = 1_500
"""Counted in the URL, where most letters beyond ASCII take six characters or nine."""

_COUNTS: Final = AliasChoices("count", "num_results", "max_results", "limit", "n")
Count = Annotated[SkipJsonSchema[int], Field(ge=0, validation_alias=_COUNTS)]
"""Wanted results, under the names that models use unasked; 0: as many as the settings allow."""
_AT_MOST: Final = "\n[There are at most {most} results.]"

REMEMBERED_SECONDS: Final = 600.0
MAX_REMEMBERED: Final = 64
_CALLS_PER_MINUTE: Final = 30


class SearchResult(NamedTuple):
    """A result in the words of the search engine; `age` is in words or a date, empty if unknown."""

    title: str
    url: str
    snippet: str
    age: str = ""


Search = Callable[[str, int], Awaitable[Iterable[SearchResult]]]
"""Returns results of a query, best first, perhaps more or fewer than asked for; or ToolError."""


@asynccontextmanager
async def open_web_search(
    settings: WebSearchSettings,
    sandboxes: SandboxPolicy | None = None,
    *,
    now: Callable[[], float] = monotonic,
) -> AsyncIterator[Tool]:
    """Provide the search.

    Raises:
        ToolUnavailable: the engine has no key, its package is not installed, its address in the
            settings can never be asked, or its sandboxes may not run here.
    """
    recent: TTLCache[tuple[str, int], str] = TTLCache(MAX_REMEMBERED, REMEMBERED_SECONDS, now)
    async with _open_engine(settings, sandboxes or SandboxPolicy()) as search:

        async def web_search(
            query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)],
            count: Count = 0,
        ) -> str:
            """Search the web for current or uncertain facts. Cite number and link."""
            query, most = " ".join(query.split()), settings.max_results
            _check(query)
            wanted = min(count or most, most)
            if (answer := recent.get((query, wanted))) is None:
                found = await search(query, wanted)
                answer = recent[query, wanted] = numbered(found, wanted)
            return answer + _AT_MOST.format(most=most) * (count > most)

        async def probe() -> None:
            """Check key and address with one search."""
            if settings.engine != "duckduckgo":  # which soon asks whether a human is searching
                await search("test", 1)

        yield tool_from(web_search, untrusted=True, calls_per_minute=_CALLS_PER_MINUTE, probe=probe)


@asynccontextmanager
async def _open_engine(
    settings: WebSearchSettings, sandboxes: SandboxPolicy
) -> AsyncIterator[Search]:
    if settings.url is not None:
        try:
            checked(settings.url)
        except AddressRefused as error:
            raise ToolUnavailable(f"TOOLS__WEB_SEARCH__URL cannot be asked: {error}") from None
    client = WebClient(operator_urls=(settings.url,) if settings.url is not None else ())
    match settings.engine:
        case "brave":
            if settings.api_key is None:
                raise ToolUnavailable(_NO_KEY)
            yield _brave(client, settings.api_key.get_secret_value(), settings.url or BRAVE_URL)
        case "searxng":
            if settings.url is None:
                raise ToolUnavailable(_NO_ADDRESS)
            yield _searxng(client, settings.url)
        case "duckduckgo":
            sandboxes.require_walls()
            if find_spec("ddgs") is None:
                raise ToolUnavailable(_NOT_INSTALLED)
            async with Sandbox("tools.web.duckduckgo_worker", _READER, policy=sandboxes) as reader:
                yield _duckduckgo(client, settings.url, reader)


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


# Text for the model; strangers wrote all of it ----------------------------------------------------

_MAX_TITLE_CHARACTERS: Final = 150
_MAX_SNIPPET_CHARACTERS: Final = 400
_MAX_AGE_CHARACTERS: Final = 40
_NOTHING: Final = "No results. Other or fewer words may find more."


def numbered(results: Iterable[SearchResult], count: int) -> str:
    """Format at most `count` results so that an answer can cite them by number.

    Duplicates and addresses that cannot be opened are left out.
    """
    by_address: dict[str, SearchResult] = {}
    for result in results:
        if _can_be_opened(result.url):
            by_address.setdefault(result.url.rstrip("/"), result)
    entries = enumerate(islice(by_address.values(), count), start=1)
    return "\n".join(_entry(number, result) for number, result in entries) or _NOTHING


def _can_be_opened(url: str) -> bool:
    if len(url) > MAX_URL or not url.isprintable() or " " in url:
        return False
    try:
        address = urlsplit(url)
    except ValueError:
        return False
    has_host = address.hostname is not None and "@" not in address.netloc  # an "@" misleads
    return address.scheme in {"http", "https"} and has_host


def _entry(number: int, result: SearchResult) -> str:
    title = short_line(result.title, _MAX_TITLE_CHARACTERS) or urlsplit(result.url).netloc
    age = short_line(result.age, _MAX_AGE_CHARACTERS)
    snippet = short_line(result.snippet, _MAX_SNIPPET_CHARACTERS)
    head = f"[{number}] {title} — {result.url}" + (f" ({age})" if age else "")
    return f"{head}\n    {snippet}" if snippet else head


# Brave --------------------------------------------------------------------------------------------

BRAVE_URL: Final = "https://api.search.brave.com/res/v1/web/search"
MAX_PAUSE_SECONDS: Final = 2.0
_MAX_ANSWER_BYTES: Final = 512 * 1024
_TURN_SECONDS: Final = 4.0  # for the calls of one turn, one each second
_SHORTEST_WINDOW_SECONDS: Final = 1
_MAX_RESULTS: Final = 20  # Brave's own maximum

_NO_KEY: Final = (
    "No key: set TOOLS__WEB_SEARCH__API_KEY, or TOOLS__WEB_SEARCH__PROVIDER=duckduckgo."
)
_REFUSED_KEY_CODES: Final = frozenset(
    {"SUBSCRIPTION_TOKEN_INVALID", "SUBSCRIPTION_NOT_FOUND", "OPTION_NOT_IN_PLAN"}
)


class _BraveResult(BaseModel):
    title: str = ""
    url: str
    description: str | None = None
    age: str | None = None
    page_age: str | None = None


class _BraveResults(BaseModel):
    results: list[object] = []


class _BravePage(BaseModel):
    """Results; `web` is missing if nothing was found."""

    type: Literal["search"]
    web: _BraveResults | None = None


def _brave(client: WebClient, key: str, url: str) -> Search:
    second_attempts = asyncio.Lock()

    async def ask(query: str, count: int) -> WebAnswer:
        return await client.request(
            url,
            purpose=("search", query),
            params={
                "q": query,
                "count": count,
                "safesearch": "moderate",
                "text_decorations": "false",
                "result_filter": "web",
            },
            headers={"Accept": "application/json", "X-Subscription-Token": key},
            max_bytes=_MAX_ANSWER_BYTES,
        )

    async def search(query: str, count: int) -> Iterable[SearchResult]:
        """Search with Brave; one search at a time is repeated, to stay within the limit.

        Raises:
            ToolUnavailable: Brave refuses the key.
            ToolError: Brave cannot be reached, does not answer properly, or allows no search now.
        """
        answer = await ask(query, count)
        if answer.status == 429 and not _quota_is_used_up(answer):
            try:
                async with asyncio.timeout(_TURN_SECONDS):
                    await second_attempts.acquire()
            except TimeoutError:
                raise ToolError("Too many searches at once; try again in a few seconds.") from None
            try:
                await asyncio.sleep(_pause_seconds(answer.headers))
                answer = await ask(query, count)
            finally:
                second_attempts.release()
        if answer.status != 200:
            raise _brave_failure(answer)
        try:
            page = _BravePage.model_validate_json(answer.body)
        except ValidationError:
            raise ToolError("Brave answered with something else than search results.") from None
        return _brave_results(page.web.results[:_MAX_RESULTS] if page.web else [])

    return search


def _brave_results(entries: Iterable[object]) -> Iterator[SearchResult]:
    for entry in entries:
        try:
            result = _BraveResult.model_validate(entry)
        except ValidationError:
            continue  # the others are still good
        yield SearchResult(
            title=_plain(result.title),
            url=result.url,
            snippet=_plain(result.description or ""),
            age=result.age or (result.page_age or "").partition("T")[0],
        )


def _plain(text: str) -> str:
    """Convert Brave's HTML to text; it sends `<strong>` even with text_decorations=false."""
    return unescape(re.sub(r"<[^<>]*>", "", text))


def _brave_failure(answer: WebAnswer) -> WorkError:
    if answer.status in {401, 403} or _error_code(answer.body) in _REFUSED_KEY_CODES:
        return ToolUnavailable("Brave refuses TOOLS__WEB_SEARCH__API_KEY.")
    match answer.status:
        case 402:
            sentence = "Brave wants to be paid before it searches again."
        case 400 | 422:
            sentence = "Brave does not accept this query; put it differently."
        case 429 if _quota_is_used_up(answer):
            sentence = f"The searches that Brave allows are used up{_until(answer.headers)}."
        case 429:
            sentence = "Brave allows no more searches this second; try again in a few seconds."
        case status if status >= 500:
            sentence = f"Brave is failing right now (HTTP {status}); try again later."
        case status:
            sentence = f"Brave answered with HTTP {status} instead of search results."
    return ToolError(sentence)


def _error_code(body: bytes) -> str:
    try:
        answer = from_json(body)
        return str((answer.get("error") or answer["errors"][0])["code"])
    except (ValueError, TypeError, LookupError, AttributeError):
        return ""


def _quota_is_used_up(answer: WebAnswer) -> bool:
    """Distinguish a used-up quota from searches in too quick succession: both are a 429."""
    long = _pause_seconds(answer.headers) > MAX_PAUSE_SECONDS
    return long or _error_code(answer.body) == "QUOTA_LIMITED"


def _until(headers: Mapping[str, str]) -> str:
    seconds = _pause_seconds(headers)
    if seconds <= MAX_PAUSE_SECONDS:
        return ""  # Brave did not say
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return f" until {moment:%Y-%m-%d %H:%M} UTC"


def _pause_seconds(headers: Mapping[str, str]) -> int:
    """Return the seconds until the last of the used-up windows begins again.

    The headers have a number for each window, the shortest first; a limit of 0 means no limit.
    """
    limits, remaining, resets = (
        [int(number) for number in re.findall(r"-?\d{1,9}", headers.get(name, ""))]
        for name in ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
    )
    used_up = [
        reset
        for limit, left, reset in zip(limits, remaining, resets, strict=False)
        if limit > 0 and left <= 0
    ]
    return max(used_up, default=_SHORTEST_WINDOW_SECONDS)


# DuckDuckGo ---------------------------------------------------------------------------------------

MAX_PAGE_BYTES: Final = 512 * 1024
_READER: Final = Limits(
    line_bytes=7 * MAX_PAGE_BYTES,  # six letters for each byte at the worst, as JSON
    reply_bytes=256 * 1024,  # twenty results of at most 3,049 characters each
    idle_seconds=300,
)
_EVERYWHERE: Final = "wt-wt"
_HEADERS: Final = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept": "text/html",
}
_FOUND: Final = TypeAdapter(Annotated[list[SearchResult], FailFast()])

_NOT_INSTALLED: Final = (
    "The package ddgs is not installed: pip install 'signal-tee-bot[duckduckgo]'."
)
_HUMAN: Final = (
    "DuckDuckGo asks whether a human is searching; try again later, or set up Brave "
    "(TOOLS__WEB_SEARCH__PROVIDER=brave)."
)


def _duckduckgo(client: WebClient, url: str | None, reader: Sandbox) -> Search:
    async def search(query: str, _: int) -> Iterable[SearchResult]:
        """Return one page of results.

        Raises:
            ToolError: DuckDuckGo cannot be reached, does not answer properly, or wants a human.
        """
        engine = await asyncio.to_thread(_ddgs_engine)
        answer = await client.request(
            url or engine.search_url,
            purpose=("search", query),
            method="POST",
            form=engine.build_payload(query, _EVERYWHERE, "moderate", None),
            headers=_HEADERS,
            max_bytes=MAX_PAGE_BYTES,
        )
        if answer.status in {403, 418, 429}:
            raise ToolError(_HUMAN)
        if answer.status not in {200, 202}:
            raise ToolError(f"DuckDuckGo is failing right now (HTTP {answer.status}).")
        page = answer.body.decode(errors="replace")
        try:
            found = _FOUND.validate_json(await reader.call(page))
        except ValidationError:  # a hostile page may have taken over the process
            raise ToolError("The search results cannot be read.") from None
        if not found and (answer.status == 202 or "anomaly" in page):
            raise ToolError(_HUMAN)
        if not found and "no-results" not in page:
            raise ToolError("DuckDuckGo answered with something else than search results.")
        return found

    return search


@cache
def _ddgs_engine() -> Any:
    # Costs 8 MB, so only a search imports it.
    module = import_module("ddgs.engines.duckduckgo")
    return object.__new__(module.Duckduckgo)  # its constructor opens an HTTP client


# SearXNG ------------------------------------------------------------------------------------------

_NO_ADDRESS: Final = "No address: set TOOLS__WEB_SEARCH__URL to that of your SearXNG."
_NO_JSON: Final = (
    "SearXNG at TOOLS__WEB_SEARCH__URL gives no JSON: add json to search.formats in its"
    " settings.yml."
)


class _SearxngResult(BaseModel):
    title: str = ""
    url: str
    content: str | None = None
    published: str | None = Field(None, alias="publishedDate")


class _SearxngPage(BaseModel):
    results: list[object]


def _searxng(client: WebClient, url: str) -> Search:
    address = url if url.endswith("/search") else f"{url}/search"

    async def search(query: str, _: int) -> Iterable[SearchResult]:
        """Search with SearXNG, which gives a page of results.

        Raises:
            ToolUnavailable: it gives no JSON.
            ToolError: it cannot be reached, does not answer properly, or allows no search now.
        """
        answer = await client.request(
            address,
            purpose=("search", query),
            params={"q": query, "format": "json", "safesearch": 1},
            headers={"Accept": "application/json"},
            max_bytes=_MAX_ANSWER_BYTES,
        )
        match answer.status:
            case 200:
                pass
            case 403:
                raise ToolUnavailable(_NO_JSON)
            case 429:
                raise ToolError("SearXNG allows no more searches now; try again in a minute.")
            case status:
                raise ToolError(f"SearXNG answered with HTTP {status} instead of search results.")
        try:
            page = _SearxngPage.model_validate_json(answer.body)
        except ValidationError:
            raise ToolError("SearXNG answered with something else than search results.") from None
        return _searxng_results(page.results[:_MAX_RESULTS])

    return search


def _searxng_results(entries: Iterable[object]) -> Iterator[SearchResult]:
    for entry in entries:
        try:
            result = _SearxngResult.model_validate(entry)
        except ValidationError:
            continue  # the others are still good
        day = (result.published or "").partition("T")[0]
        yield SearchResult(result.title, result.url, result.content or "", day)
