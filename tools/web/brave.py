"""Brave's Web Search API.

Sources, under https://api-dashboard.search.brave.com: app/documentation/web-search/query (limits of
a query), …/responses (fields), documentation/guides/rate-limiting (the X-RateLimit headers),
api-reference (codes of errors). The documentation has a list of `errors`; the service answers one
`error`: https://github.com/egoist/chatwise-releases/issues/1296. A wrong key is a 422:
https://github.com/nearai/ironclaw/issues/2780.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Final, Literal

from pydantic import BaseModel, ValidationError

from tools.errors import ToolError, ToolUnavailable
from tools.web.client import WebAnswer, WebClient
from tools.web.search_results import SearchResult

BRAVE_URL: Final = "https://api.search.brave.com/res/v1/web/search"
MAX_ANSWER_BYTES: Final = 512 * 1024
MAX_PAUSE_SECONDS: Final = 2.0
_TURN_SECONDS: Final = 4.0  # as many calls as a turn may have, one each second
_ONE_SECOND: Final = 1  # the shortest window that Brave counts in
_MAX_RESULTS: Final = 20  # what Brave sends at most

_NO_KEY: Final = (
    "No key: set TOOLS__WEB_SEARCH__API_KEY, or TOOLS__WEB_SEARCH__PROVIDER=duckduckgo."
)
_CODES_OF_A_REFUSED_KEY: Final = frozenset(
    {"SUBSCRIPTION_TOKEN_INVALID", "SUBSCRIPTION_NOT_FOUND", "OPTION_NOT_IN_PLAN"}
)


class _Result(BaseModel):
    title: str = ""
    url: str
    description: str | None = None
    age: str | None = None
    page_age: str | None = None


class _Web(BaseModel):
    results: list[object] = []


class _Page(BaseModel):
    """What Brave found; `web` is missing where it found nothing."""

    type: Literal["search"]
    web: _Web | None = None


class _Error(BaseModel):
    code: str = ""


class _ErrorPage(BaseModel):
    error: _Error | None = None
    errors: list[_Error] = []


class Brave:
    """Searches with Brave; the key is in its requests and nowhere else.

    Args:
        client: makes the requests.
        api_key: the subscription token.
        url: in place of Brave's own address.

    Raises:
        ToolUnavailable: there is no key.
    """

    def __init__(self, client: WebClient, *, api_key: str | None, url: str | None) -> None:
        if not api_key:
            raise ToolUnavailable(_NO_KEY)
        self._client = client
        self._key = api_key
        self._url = url or BRAVE_URL
        self._second_attempts = asyncio.Lock()

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return the results of a query, the best first.

        Raises:
            ToolUnavailable: Brave refuses the key.
            ToolError: Brave cannot be reached, does not answer properly, or allows no search now.
        """
        answer = await self._ask(query, count)
        if answer.status == 429 and not _quota_is_used_up(answer):
            answer = await self._ask_again(query, count, _pause_seconds(answer.headers))
        if answer.status != 200:
            raise _failure(answer)
        return list(_results(answer.body))

    async def probe(self) -> None:
        """Find out by one search whether the key works.

        Raises:
            ToolUnavailable: Brave refuses the key.
            ToolError: there is no answer that says anything about the key.
        """
        await self.search("test", 1)

    async def _ask(self, query: str, count: int) -> WebAnswer:
        return await self._client.request(
            self._url,
            params={
                "q": query,
                "count": count,
                "safesearch": "moderate",
                "text_decorations": "false",
                "result_filter": "web",
            },
            headers={"Accept": "application/json", "X-Subscription-Token": self._key},
            max_bytes=MAX_ANSWER_BYTES,
        )

    async def _ask_again(self, query: str, count: int, pause_seconds: float) -> WebAnswer:
        """Ask once more after a pause, one call at a time: else they would be too many again."""
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._second_attempts.acquire()
        except TimeoutError:
            raise ToolError("Too many searches at once; try again in a few seconds.") from None
        try:
            await asyncio.sleep(pause_seconds)
            return await self._ask(query, count)
        finally:
            self._second_attempts.release()


def _results(body: bytes) -> Iterator[SearchResult]:
    try:
        page = _Page.model_validate_json(body)
    except ValidationError:
        raise ToolError("Brave answered with something else than search results.") from None
    for entry in (page.web.results if page.web else [])[:_MAX_RESULTS]:
        try:
            result = _Result.model_validate(entry)
        except ValidationError:
            continue  # the others are still good
        yield SearchResult(
            title=_plain(result.title),
            url=result.url,
            snippet=_plain(result.description or ""),
            age=result.age or (result.page_age or "").partition("T")[0],
        )


def _plain(text: str) -> str:
    """Return Brave's HTML as text: its own tags, `<strong>`, come even where none are wanted."""
    return unescape(re.sub(r"<[^<>]*>", "", text))


def _failure(answer: WebAnswer) -> ToolError:
    """Return what an answer without results comes to."""
    if answer.status in {401, 403} or _error_code(answer.body) in _CODES_OF_A_REFUSED_KEY:
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
        page = _ErrorPage.model_validate_json(body)
    except ValidationError:
        return ""
    errors = [page.error] if page.error else page.errors
    return errors[0].code if errors else ""


def _quota_is_used_up(answer: WebAnswer) -> bool:
    """Tell a quota that is used up from searches that came too fast: both are a 429."""
    long = _pause_seconds(answer.headers) > MAX_PAUSE_SECONDS
    return long or _error_code(answer.body) == "QUOTA_LIMITED"


def _until(headers: Mapping[str, str]) -> str:
    seconds = _pause_seconds(headers)
    if seconds <= MAX_PAUSE_SECONDS:
        return ""  # Brave did not say
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return f" until {moment:%Y-%m-%d %H:%M} UTC"


def _pause_seconds(headers: Mapping[str, str]) -> int:
    """Return when the last of the windows that are used up begins anew, in seconds from now.

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
    return max(used_up, default=_ONE_SECOND)
