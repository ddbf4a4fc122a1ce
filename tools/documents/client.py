"""The reader of documents, as the daemon sees it."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from tools.documents.document import MAX_CHARACTERS, MAX_LINE_CHARACTERS, Document, kind_of
from tools.sandbox.errors import WorkError, WorkLost
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy

READER_LIMITS: Final = Limits(
    memory_bytes=512 * 2**20,
    call_seconds=7.0,
    line_bytes=16 * 2**20,  # a download of 5 MB as Base64
    reply_bytes=4 * (MAX_CHARACTERS + 2 * MAX_LINE_CHARACTERS + 2),
    idle_seconds=180.0,
)

Read = Callable[[bytes, str, str], Awaitable[Document]]
"""Turns a document into text, by its declared type and its address, which may both be empty.

Raises WorkError if it cannot be read.
"""


@asynccontextmanager
async def open_reader(sandboxes: SandboxPolicy | None = None) -> AsyncIterator[Read]:
    """Provide a reader; its processes start with the first document and end when idle."""
    async with Sandbox("tools.documents.worker", READER_LIMITS, policy=sandboxes) as sandbox:

        async def read(body: bytes, content_type: str, url: str) -> Document:
            request = {
                "kind": kind_of(content_type, body),
                "content_type": content_type,
                "url": url,
                "body": base64.b64encode(body).decode("ascii"),
            }
            try:
                reply = await sandbox.call(json.dumps(request))
            except WorkLost:
                raise WorkError("This document is too large to be read.") from None
            try:
                return Document.from_text(reply)
            except ValueError:  # a hostile document may have taken over the process
                raise WorkError("This document cannot be read.") from None

        yield read
