"""`web_fetch` as a tool: download a page, read it in a sandbox, return it in parts."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Final

from cachetools import TTLCache
from pydantic import AfterValidator, Field

from tools.base import Tool, ToolError
from tools.documents.client import open_reader
from tools.documents.document import Document, kind_of
from tools.sandbox.pool import SandboxPolicy
from tools.schema import tool_from
from tools.settings import MAX_RESULT_BYTES
from tools.web.client import WebAnswer, WebClient
from tools.web.guard import MAX_URL, checked

MAX_DOWNLOADED_BYTES: Final = 5 * 2**20
MAX_PAGES_KEPT: Final = 8
PAGE_KEPT_SECONDS: Final = 300.0
_FRAME_BYTES: Final = 400  # of the frame that the executor puts around untrusted text
_LEAST_PART_BYTES: Final = 200
_BREAKS: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…。]\s"),
    re.compile(r"\s"),
)
_ACCEPT: Final = "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5"


def _checked(url: str) -> str:
    """Refuse impossible addresses before a person is asked about them."""
    checked(url)
    return url


Address = Annotated[str, Field(max_length=MAX_URL), AfterValidator(_checked)]


@asynccontextmanager
async def open_web_fetch(
    sandboxes: SandboxPolicy,
    *,
    result_limit_bytes: int = MAX_RESULT_BYTES,
    client: WebClient | None = None,
) -> AsyncIterator[Tool]:
    """Provide the tool, which returns parts of `result_limit_bytes`.

    Raises:
        ToolUnavailable: sandboxes may not run here.
    """
    sandboxes.require_walls()
    web = client or WebClient()
    async with open_reader(sandboxes) as read:
        # The next parts of a page need no download.
        recent: TTLCache[str, tuple[str, Document]] = TTLCache(MAX_PAGES_KEPT, PAGE_KEPT_SECONDS)

        async def web_fetch(
            url: Address,
            offset: Annotated[int, Field(ge=0)] = 0,
        ) -> str:
            """Read a web page, text file or PDF.

            Args:
                offset: In characters, as the result says.
            """
            if not offset or (page := recent.get(url)) is None:
                answer = await web.request(
                    url, headers={"accept": _ACCEPT}, max_bytes=MAX_DOWNLOADED_BYTES, cut_long=True
                )
                document = await read(answer.body, _checked_type(answer), answer.url)
                page = recent[url] = (answer.url, document)
            return _shown(*page, offset, result_limit_bytes - _FRAME_BYTES)

        yield tool_from(web_fetch, untrusted=True, address="url")


def _checked_type(answer: WebAnswer) -> str:
    """Return the declared type of a document in an answer.

    Raises:
        ToolError: there is nothing to read; the text gives the reason.
    """
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        raise ToolError(_refusal(answer))
    if not answer.body:
        raise ToolError("The page is empty.")
    content_type = answer.headers.get("content-type", "")
    if answer.cut:
        name = "PDF" if kind_of(content_type, answer.body) == "pdf" else "page"
        raise ToolError(
            f"This {name} is larger than {MAX_DOWNLOADED_BYTES // 2**20} MB, which I do not read."
        )
    return content_type


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


def _shown(url: str, page: Document, offset: int, room_bytes: int) -> str:
    """Return a part of a page under its title and address, with the offset of the next part."""
    text, total = page.text, len(page.text)
    if offset and offset >= total:
        raise ToolError(f"The page ends at character {total}; there is nothing at {offset}.")
    head = "\n".join(filter(None, (page.title, url)))
    note = f"[{page.note}]" if page.note else ""
    whole = "\n\n".join(filter(None, (head, text, note)))
    if not offset and len(whole.encode()) <= room_bytes:
        return whole

    def position(end: int) -> str:
        more = f" For more call web_fetch with offset={end}." if end < total else ""
        return f"[Characters {offset} to {end} of {total}.{more}]\n{note}".rstrip()

    room = room_bytes - len(f"{head}\n\n\n\n{position(total)}".encode())
    part = part_of(text, offset, max(room, _LEAST_PART_BYTES))
    return f"{head}\n\n{part.strip()}\n\n{position(offset + len(part))}"


def part_of(text: str, offset: int, room_bytes: int) -> str:
    """Return the longest part from an offset that fits, up to a paragraph, line, sentence or word.

    Args:
        text: without lone surrogates.
        room_bytes: of the part as UTF-8.
    """
    fitting = text[offset : offset + room_bytes].encode()[:room_bytes].decode(errors="ignore")
    if offset + len(fitting) >= len(text):
        return fitting
    last_third = 2 * len(fitting) // 3
    for pattern in _BREAKS:
        if ends := [found.end() for found in pattern.finditer(fitting, last_third)]:
            return fitting[: ends[-1]]
    return fitting
