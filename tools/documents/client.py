"""The reader seen from the daemon."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from tools.documents.document import MAX_CHARACTERS, MAX_LINE_CHARACTERS, Document, DocumentSource
from tools.sandbox.errors import WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy

READER_LIMITS: Final = Limits(
    memory_bytes=512 * 2**20,
    call_seconds=7.0,
    line_bytes=16 * 2**20,  # a download of 5 MB as Base64
    reply_bytes=4 * (MAX_CHARACTERS + 2 * MAX_LINE_CHARACTERS + 2),
    idle_seconds=180.0,
)

Read = Callable[[DocumentSource], Awaitable[Document]]
"""Turns a document into text; raises WorkError where it cannot be read."""


@asynccontextmanager
async def open_reader(
    limits: Limits = READER_LIMITS, sandboxes: SandboxPolicy | None = None
) -> AsyncIterator[Read]:
    """Provide a reader; its processes start with the first document and end when idle."""
    async with Sandbox("tools.documents.worker", limits, policy=sandboxes) as sandbox:

        async def read(source: DocumentSource) -> Document:
            return _document(await sandbox.call(source.as_text()))

        yield read


def _document(reply: str) -> Document:
    """Read a reply of a process that a hostile document may have made its own."""
    try:
        return Document.from_text(reply)
    except ValueError:
        raise WorkError("This document cannot be read.") from None
