"""`signal-tee-bot ready`: whether the bot that runs here is ready, for a container's health check.

It asks `/readyz` where `HEALTH__LISTEN` says, from the same machine or container, so an image needs
neither a shell nor an HTTP client for it.
"""

import asyncio
from typing import Final

from pydantic import BaseModel, ValidationError

from bot.errors import BotError, SettingsError

ASK_SECONDS: Final = 8.0
"""`/readyz` itself takes up to five seconds where a part does not answer."""
ANSWER_BYTES: Final = 64 * 1024

LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not listened on
"""Where something listens that listens everywhere."""

_REQUEST: Final = b"GET /readyz HTTP/1.0\r\n\r\n"  # after 1.0's answer the connection is closed


class _Part(BaseModel):
    ok: bool
    detail: str


class _Readiness(BaseModel):
    ok: bool
    checks: dict[str, _Part]


async def ready(listen: str, *, seconds: float = ASK_SECONDS) -> bool:
    """Print how each part of the running bot is, and return whether it is ready.

    Args:
        listen: `HEALTH__LISTEN`.
        seconds: for the whole answer.

    Raises:
        SettingsError: health is switched off, so nobody can be asked.
        BotError: nobody answers there, or somebody else does.
    """
    if not listen:
        raise SettingsError("HEALTH__LISTEN: is empty, so there is nothing to ask")
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        async with asyncio.timeout(seconds):
            answer = await _ask(LOOPBACK.get(host, host), int(port))
    except TimeoutError:
        raise BotError(f"No answer at HEALTH__LISTEN within {seconds:g} seconds.") from None
    except OSError:
        raise BotError("Nobody answers at HEALTH__LISTEN; is the bot running?") from None
    readiness = _read(answer)
    for name, part in sorted(readiness.checks.items()):
        print(f"{'ok' if part.ok else 'failed':<8} {name:<16} {part.detail}")  # noqa: T201
    return readiness.ok


async def _ask(host: str, port: int) -> bytes:
    """Return the whole answer, or as much of it as an answer may have."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(_REQUEST)
        answer = b""
        while len(answer) < ANSWER_BYTES and (more := await reader.read(ANSWER_BYTES)):
            answer += more
        return answer
    finally:
        writer.transport.abort()


def _read(answer: bytes) -> _Readiness:
    _, _, body = answer.partition(b"\r\n\r\n")
    try:
        return _Readiness.model_validate_json(body)
    except ValidationError:
        raise BotError("What answers at HEALTH__LISTEN is not this bot.") from None
