"""`signal-tee-bot ready` against a served `/readyz`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from bot.cli.ready import ready
from bot.errors import BotError
from bot.observability.health import Check, Health, health_server
from bot.observability.health_client import MAX_ANSWER_BYTES
from tests.fakes.http import served


async def fine() -> Health:
    return Health(ok=True, detail="Connected.")


async def measured() -> bytes:
    return generate_latest()


@asynccontextmanager
async def bot(*, host: str = "127.0.0.1", signal: Check = fine) -> AsyncIterator[str]:
    """Serve health as a bot does, and yield what its HEALTH__LISTEN would be."""
    checks = {"signal": signal, "store": fine}
    async with health_server(listen=f"{host}:0", checks=checks, metrics=measured) as port:
        yield f"{host}:{port}"


@asynccontextmanager
async def stranger(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Serve something else than a bot."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if isinstance(body, bytes):
            await response.write(body)
            return response
        with suppress(ConnectionError):
            async for piece in body:
                await response.write(piece)
        return response

    async with served(answer) as port:
        yield f"127.0.0.1:{port}"


async def without_end() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * MAX_ANSWER_BYTES


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "[::]"])
async def test_a_bot_that_listens_everywhere_is_asked_on_this_machine(host: str) -> None:
    async with bot(host=host) as listen:
        assert await ready(listen)


async def test_a_bot_that_hangs_is_not_waited_for_without_end() -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.transport.abort()
        gone.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BotError, match=r"No answer at HEALTH__LISTEN within 0\.05 seconds"):
            await ready(f"127.0.0.1:{port}", seconds=0.05)
        await gone.wait()


@pytest.mark.parametrize("body", [b"ok\n", b'{"ok": true}', b"[]", b"x" * 10 * MAX_ANSWER_BYTES])
async def test_something_else_that_answers_there_is_not_taken_for_the_bot(body: bytes) -> None:
    async with stranger(body) as listen:
        with pytest.raises(BotError, match="not this bot"):
            await ready(listen)


async def test_an_answer_without_an_end_is_not_read_to_its_end() -> None:
    async with stranger(without_end()) as listen:
        with pytest.raises(BotError, match="not this bot"):
            await ready(listen)
