"""Taking in an answer's bytes: fed to its reader as they come, and hashed for its signature."""

import asyncio
import hashlib
import time
from typing import Final

import httpx

from bot.llm.attested import Exchange
from bot.llm.dialect import AnswerReader
from bot.observability.metrics import LLM_FIRST_BYTE_SECONDS

AFTER_THE_END_SECONDS: Final = 1.0
"""After `[DONE]`: how long the end of the HTTP body may take, which keeps the connection usable."""
FED_AT_ONCE_BYTES: Final = 32 * 1024
"""Of an answer, between two turns of the event loop; a socket may give several times as much."""


async def received(
    response: httpx.Response, reader: AnswerReader, bound: asyncio.Timeout, asked_at: float
) -> str:
    """Feed the reader, and return the SHA-256 of the whole body, also of what it does not need."""
    digest = hashlib.sha256()
    pieces = response.aiter_raw()
    is_first = True
    async for piece in pieces:
        if is_first:
            LLM_FIRST_BYTE_SECONDS.observe(time.monotonic() - asked_at)
            is_first = False
        digest.update(piece)
        for start in range(0, len(piece), FED_AT_ONCE_BYTES):
            if start:
                await asyncio.sleep(0)  # many events at once keep the event loop from nobody
            reader.feed(piece[start : start + FED_AT_ONCE_BYTES])
        if reader.done:
            bound.reschedule(asyncio.get_running_loop().time() + AFTER_THE_END_SECONDS)
            break
    async for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def exchange_of(completion_id: str, body: bytes, response_sha256: str | None) -> Exchange | None:
    """Return the hashes of what went and came; None where one of them, or the name, is missing."""
    if response_sha256 is None or not completion_id:
        return None
    return Exchange(completion_id, hashlib.sha256(body).hexdigest(), response_sha256)
