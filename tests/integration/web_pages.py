"""Documents for the tests of `web_fetch`, and the tool as a model meets it."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO

from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from tests.executing import an_executor, often, run_call
from tests.fakes.web_server import Behaviour, WebServer, web_server
from tools.base import Caller, ToolRequest, ToolResult
from tools.sandbox.pool import SandboxPolicy
from tools.settings import MAX_RESULT_BYTES
from tools.web.client import FetchBounds, WebClient
from tools.web.connection import Lookup
from tools.web.fetch import open_web_fetch
from tools.web.guard import IPAddress

Fetch = Callable[..., Coroutine[None, None, ToolResult]]
"""Calls `web_fetch` through an executor: `await fetch(url, offset=...)`."""


def only_one(address: IPAddress) -> bool:
    """Play the internet on 127.0.0.1; all other loopback addresses play private ones."""
    return str(address) == "127.0.0.1"


async def everywhere(name: str) -> Sequence[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def web_fetch(
    *,
    lookup: Lookup = everywhere,
    bounds: FetchBounds | None = None,
    result_limit_bytes: int = MAX_RESULT_BYTES,
) -> AsyncIterator[Fetch]:
    client = WebClient(permits=only_one, lookup=lookup, bounds=bounds)
    opened = open_web_fetch(SandboxPolicy(), result_limit_bytes=result_limit_bytes, client=client)
    async with opened as tool:
        executor = an_executor([often(tool)], result_limit_bytes=result_limit_bytes)

        async def fetch(url: str, **arguments: int) -> ToolResult:
            sent = json.dumps({"url": url, **arguments})
            request = ToolRequest("call_1", "web_fetch", sent, Caller("someone"))
            return await run_call(executor, request)

        yield fetch


@asynccontextmanager
async def reading(
    behaviours: Mapping[str, Behaviour],
    *,
    lookup: Lookup = everywhere,
    bounds: FetchBounds | None = None,
    result_limit_bytes: int = MAX_RESULT_BYTES,
) -> AsyncIterator[tuple[WebServer, Fetch]]:
    """Provide a site and a reader of it."""
    fetching = web_fetch(lookup=lookup, bounds=bounds, result_limit_bytes=result_limit_bytes)
    async with web_server(behaviours) as server, fetching as fetch:
        yield server, fetch


def pdf(*pages: str, title: str = "", password: str = "", algorithm: str = "RC4-128") -> bytes:
    """Return a PDF whose pages say that; an empty text makes a page without any."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(300, 300)
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode() if text else b"")
        page[NameObject("/Contents")] = writer._add_object(content)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
    if title:
        writer.add_metadata({"/Title": title})
    if password or algorithm != "RC4-128":
        writer.encrypt(password, "owner", algorithm=algorithm)
    file = BytesIO()
    writer.write(file)
    return file.getvalue()
