"""The reader seen from the daemon."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from pydantic import TypeAdapter

from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.pool import Limits, Sandbox
from tools.web.reader.document import LINE_BYTES, Document, Source

READER_LIMITS: Final = Limits(
    memory_bytes=512 * 2**20,
    call_seconds=7.0,
    line_bytes=LINE_BYTES,
    idle_seconds=180.0,
)
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
            return _DOCUMENT.validate_json(await sandbox.call(source.as_text()))

        yield read
