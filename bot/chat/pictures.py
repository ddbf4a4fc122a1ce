"""The daemon's side of pictures of tables.

Phones show a wide table as lines of text, so the answer also gets a picture of it. The answer is
stored first, together with the source of the picture. The outbox has the picture drawn just before
it sends the message, in a process that can be killed. Without a picture, the text goes alone.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import structlog

from bot.signal.formatting import MAX_CHARACTERS, MAX_COLUMNS, too_wide
from conversation_store.models import Attachment, StyledText
from conversation_store.outbox import FileToMake
from tools.sandbox.errors import SandboxBug, WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy

MAX_SOURCE_CHARACTERS: Final = 16_000
DRAW_SECONDS: Final = 10.0
"""For a picture, including the wait for other pictures and a process start."""

LIMITS: Final = Limits(
    memory_bytes=512 * 2**20,
    call_seconds=4.0,
    line_bytes=2**18,  # the longest source, each character as two escapes
    reply_bytes=2**21,  # `picture_worker.MAX_BYTES` as Base64
    idle_seconds=180.0,
)
_OF_A_RULE: Final = frozenset("|-: \t")
"""Characters of the line below the names of columns."""
_PNG: Final = b"\x89PNG\r\n\x1a\n"

log = structlog.get_logger()

Draw = Callable[[str], Awaitable[Attachment | None]]
"""Returns the picture of a table in Markdown; None if it cannot be drawn."""


def picture_for(answer: str, parts: Sequence[StyledText]) -> FileToMake | None:
    """Return the first table of an answer that seems too wide, with the message that shows it.

    The measure is rough, because Markdown in a cell counts; the worker measures what people see.
    """
    if "|" not in answer or len(answer) > MAX_CHARACTERS:
        return None
    lines, in_code, number = answer.splitlines(), False, 0
    while number < len(lines):
        line = lines[number]
        in_code ^= line.lstrip().startswith("```")
        number += 1
        if number < 2 or in_code or not {"|", "-"} <= {*line} <= _OF_A_RULE:
            continue
        first = number - 2
        while number < len(lines) and "|" in lines[number]:
            number += 1
        header, _, *body = table = lines[first:number]
        rows = [_cells(row) for row in (header, *body)]
        source = "\n".join(table)
        if _seems_wide(rows) and len(source) <= MAX_SOURCE_CHARACTERS:
            name = max(rows[0], key=len).strip("*_`")
            return FileToMake(
                source, next((at for at, part in enumerate(parts) if name in part.text), 0)
            )
    return None


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def _seems_wide(rows: Sequence[Sequence[str]]) -> bool:
    columns = max(map(len, rows))
    if columns > MAX_COLUMNS:
        return True
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(columns)]
    return too_wide(widths)


async def draw(ask: Callable[[str], Awaitable[str]], source: str) -> Attachment | None:
    """Return the picture of a table; None if it cannot be drawn."""
    try:
        async with asyncio.timeout(DRAW_SECONDS):
            data = base64.b64decode(await ask(source), validate=True)
    except (WorkError, SandboxBug, OSError, ValueError) as error:  # TimeoutError is an OSError
        log.info("answer.not_drawn", error=type(error).__name__)
        return None
    return Attachment("table.png", "image/png", data) if data.startswith(_PNG) else None


@asynccontextmanager
async def open_pictures(sandboxes: SandboxPolicy | None = None) -> AsyncIterator[Draw]:
    """Provide a function that draws; its processes start with the first table and end when idle."""
    async with Sandbox("bot.chat.picture_worker", LIMITS, policy=sandboxes) as sandbox:
        yield partial(draw, sandbox.call)
