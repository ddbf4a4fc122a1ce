"""DuckDuckGo's page for browsers without JavaScript; there is no API.

What to send and how to read the answer is ddgs' knowledge, https://github.com/deedy5/ddgs; the
request goes through our own client, because theirs knows neither the guard nor a bound on bytes.
Programs are often asked whether a human is searching, with
HTTP 202 or 200 and a page about an "anomaly", least of all those that look like a browser:
https://github.com/zeroclaw-labs/zeroclaw/pull/6625, https://github.com/can1357/oh-my-pi/pull/3800.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import FailFast, TypeAdapter, ValidationError

from sandbox.policy import SandboxPolicy
from sandbox.pool import Limits, Sandbox
from tools.errors import ToolError, ToolUnavailable
from tools.web.client import WebClient
from tools.web.search_results import SearchResult

if TYPE_CHECKING:
    from ddgs.engines.duckduckgo import Duckduckgo

MAX_PAGE_BYTES: Final = 512 * 1024
_READER_LIMITS: Final = Limits(
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


def page_reader(sandboxes: SandboxPolicy | None = None) -> Sandbox:
    """Return the processes that read pages, none of which is started yet."""
    return Sandbox("tools.web.duckduckgo_worker", _READER_LIMITS, policy=sandboxes)


class DuckDuckGo:
    """Searches with DuckDuckGo.

    Args:
        client: makes the requests.
        reader: made by `page_reader`, and open.
        url: in place of DuckDuckGo's own address.

    Raises:
        ToolUnavailable: the package ddgs is not installed.
    """

    def __init__(self, client: WebClient, reader: Sandbox, *, url: str | None) -> None:
        self._client = client
        self._reader = reader
        self._engine = _engine()
        self._url = url or self._engine.search_url

    async def search(self, query: str, count: int) -> list[SearchResult]:
        """Return the results of a query, the best first; always a page of them, however many.

        Raises:
            ToolError: DuckDuckGo cannot be reached, does not answer properly, or wants a human.
        """
        answer = await self._client.request(
            self._url,
            method="POST",
            form=self._engine.build_payload(query, _EVERYWHERE, "moderate", None),
            headers=_HEADERS,
            max_bytes=MAX_PAGE_BYTES,
        )
        if answer.status in {403, 418, 429}:
            raise ToolError(_HUMAN)
        if answer.status not in {200, 202}:
            raise ToolError(f"DuckDuckGo is failing right now (HTTP {answer.status}).")
        page = answer.body.decode(errors="replace")
        try:
            found = _FOUND.validate_json(await self._reader.call(page))
        except ValidationError:  # by a process that a hostile page may have made its own
            raise ToolError("The search results cannot be read.") from None
        if not found:
            _explain_nothing(answer.status, page)
        return found

    async def probe(self) -> None:
        """Find nothing out: there is no key that could be wrong."""


def _engine() -> "Duckduckgo":
    try:
        module = import_module("ddgs.engines.duckduckgo")
    except ImportError:
        raise ToolUnavailable(_NOT_INSTALLED) from None
    engine: Duckduckgo = object.__new__(module.Duckduckgo)  # its constructor opens a HTTP client
    return engine


def _explain_nothing(status: int, page: str) -> None:
    """Tell a page that says that there is nothing from one that holds something else.

    Raises:
        ToolError: it does not say so.
    """
    if status == 202 or "anomaly" in page:
        raise ToolError(_HUMAN)
    if "no-results" not in page:
        raise ToolError("DuckDuckGo answered with something else than search results.")
