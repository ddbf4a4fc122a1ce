"""`web_fetch` as a tool: download, read in a sandbox, hand over in parts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

from cachetools import TTLCache
from pydantic import AfterValidator, Field

from documents.client import Read, open_reader
from documents.document import Document, DocumentSource
from documents.kinds import DocumentKind, kind_of
from sandbox.policy import SandboxPolicy
from tools.base import Tool
from tools.errors import ToolError
from tools.schema import tool_from
from tools.settings import ToolSettings
from tools.web.client import FetchBounds, WebAnswer, WebClient, open_web_client
from tools.web.guard import MAX_URL, Permits, checked, is_public
from tools.web.lookup import Lookup
from tools.web.parts import part_of

MAX_DOWNLOADED_BYTES: Final = 5 * 2**20
MAX_PAGES_KEPT: Final = 8
PAGE_KEPT_SECONDS: Final = 300.0
_FRAME_BYTES: Final = 400  # what the executor puts around untrusted text
_LEAST_PART_BYTES: Final = 200
_ACCEPT: Final = "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5"


def _checked(url: str) -> str:
    """Refuse at once what can never be opened, so that nobody is asked about it."""
    checked(url)
    return url


Address = Annotated[str, Field(max_length=MAX_URL), AfterValidator(_checked)]


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it was read.

    Attributes:
        url: where it came from, after redirects.
        document: what it says.
    """

    url: str
    document: Document


class Pages:
    """Reads pages, and keeps the latest for a while: their next parts need no download.

    Args:
        client: downloads them.
        read: turns them into text.
    """

    def __init__(self, client: WebClient, read: Read) -> None:
        self._client = client
        self._read = read
        self._kept: TTLCache[str, Page] = TTLCache(MAX_PAGES_KEPT, PAGE_KEPT_SECONDS)

    async def fresh(self, url: str) -> Page:
        """Download and read a page.

        Raises:
            ToolError: it cannot be had or read; the text says why.
        """
        answer = await self._client.request(
            url, headers={"accept": _ACCEPT}, max_bytes=MAX_DOWNLOADED_BYTES, cut_long=True
        )
        page = Page(answer.url, await self._read(_source(answer)))
        self._kept[url] = page
        return page

    async def kept(self, url: str) -> Page:
        """Return a page that was read a short while ago, else a fresh one; errors as `fresh`."""
        return self._kept.get(url) or await self.fresh(url)


@asynccontextmanager
async def open_web_fetch(
    settings: ToolSettings,
    *,
    permits: Permits = is_public,
    lookup: Lookup | None = None,
    bounds: FetchBounds | None = None,
    sandboxes: SandboxPolicy | None = None,
) -> AsyncIterator[Tool]:
    """Provide the tool; its connections and processes end with this.

    Args:
        settings: for the size of a part.
        permits: which addresses may be connected to.
        lookup: finds the addresses of names.
        bounds: of one download.
        sandboxes: what is demanded of those that read pages; nothing without it.

    Raises:
        ToolUnavailable: sandboxes may not run here.
    """
    sandboxes = sandboxes or SandboxPolicy()
    sandboxes.require_walls()
    async with (
        open_web_client(permits=permits, lookup=lookup, bounds=bounds) as client,
        open_reader(sandboxes=sandboxes) as read,
    ):
        pages = Pages(client, read)

        async def web_fetch(
            url: Address,
            offset: Annotated[int, Field(ge=0)] = 0,
        ) -> str:
            """Read a web page, text file or PDF on the public internet as text.

            Args:
                url: The full address, with https:// or http://. What a person, a search or a page
                    has named is opened at once; for what you make up, a person may be asked.
                offset: Where to go on in a long page, in characters; the result says which.
            """
            page = await (pages.kept(url) if offset else pages.fresh(url))
            return _shown(page, offset, settings.result_limit_bytes - _FRAME_BYTES)

        yield tool_from(web_fetch, untrusted=True, address="url")


def _source(answer: WebAnswer) -> DocumentSource:
    """Return what is to be read of an answer.

    Raises:
        ToolError: there is nothing to read; the text says why.
    """
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        raise ToolError(_refusal(answer))
    if not answer.body:
        raise ToolError("The page is empty.")
    content_type = answer.headers.get("content-type", "")
    kind = kind_of(content_type, answer.body)
    if answer.cut:
        name = "PDF" if kind is DocumentKind.PDF else "page"
        raise ToolError(
            f"This {name} is larger than {MAX_DOWNLOADED_BYTES // 2**20} MB, which I do not read."
        )
    return DocumentSource(kind, content_type, answer.url, answer.body)


def _refusal(answer: WebAnswer) -> str:
    status = answer.status
    match status:
        case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
            return f"There is no such page on this site ({status})."
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return f"The site does not let me read this page ({status})."
        case HTTPStatus.TOO_MANY_REQUESTS:
            return f"The site asks me to slow down ({status}); try again {_later(answer)}."
        case HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS:
            return f"The site may not show this page for legal reasons ({status})."
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"The site has a fault of its own ({status}); try again {_later(answer)}."
        case _:
            return f"The site answered {status} instead of a page."


def _later(answer: WebAnswer) -> str:
    """Return when to try again, if the site says so in seconds (RFC 9110, 10.2.3)."""
    seconds = answer.headers.get("retry-after", "").strip()
    return f"in {seconds} seconds" if seconds.isdecimal() and len(seconds) < 7 else "later"


def _shown(page: Page, offset: int, room_bytes: int) -> str:
    """Return a part of a page under its title and address, and where the next begins."""
    text, total = page.document.text, len(page.document.text)
    if offset and offset >= total:
        raise ToolError(f"The page ends at character {total}; there is nothing at {offset}.")
    head = "\n".join(line for line in (page.document.title, page.url) if line)
    whole = "\n\n".join(piece for piece in (head, text, _bracketed(page.document.note)) if piece)
    if not offset and len(whole.encode()) <= room_bytes:
        return whole
    tail = _position(page, offset, total)
    room = room_bytes - len(f"{head}\n\n\n\n{tail}".encode())
    part = part_of(text, offset, max(room, _LEAST_PART_BYTES))
    return f"{head}\n\n{part.strip()}\n\n{_position(page, offset, offset + len(part))}"


def _position(page: Page, start: int, end: int) -> str:
    total = len(page.document.text)
    more = f" For more call web_fetch with offset={end}." if end < total else ""
    return f"[Characters {start} to {end} of {total}.{more}]" + (
        f"\n{_bracketed(page.document.note)}" if page.document.note else ""
    )


def _bracketed(note: str) -> str:
    return f"[{note}]" if note else ""
