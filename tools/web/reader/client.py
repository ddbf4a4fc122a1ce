"""The reader seen from the daemon."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tools.errors import ToolError
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.pool import Limits, Sandbox
from tools.web.reader.document import LINE_BYTES, MOST_CHARACTERS, Document, Source

READER_LIMITS: Final = Limits(
    memory_bytes=512 * 2**20,
    call_seconds=7.0,
    line_bytes=LINE_BYTES,
    idle_seconds=180.0,
)
MAX_LINE_CHARACTERS: Final = 400
"""Of a title and of a note."""
_DOCUMENT: Final = TypeAdapter(Document)

Read = Callable[[Source], Awaitable[Document]]
"""Turns a document into text; raises ToolError where it cannot be read."""


@asynccontextmanager
async def open_reader(
    limits: Limits = READER_LIMITS, sandboxes: SandboxPolicy | None = None
) -> AsyncIterator[Read]:
    """Provide a reader; its processes start with the first document and end when idle."""
    async with Sandbox("tools.web.reader.worker", limits, policy=sandboxes) as sandbox:

        async def read(source: Source) -> Document:
            return _document(await sandbox.call(source.as_text()))

        yield read


def _document(reply: str) -> Document:
    """Read a reply of a process that a hostile document may have made its own."""
    try:
        document = _DOCUMENT.validate_json(reply)
    except ValidationError:
        raise ToolError("This document cannot be read.") from None
    return Document(
        title=document.title[:MAX_LINE_CHARACTERS],
        text=document.text[:MOST_CHARACTERS],
        note=document.note[:MAX_LINE_CHARACTERS],
    )
