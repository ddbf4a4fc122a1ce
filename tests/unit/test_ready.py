"""`signal-tee-bot ready` with different servers at the health address."""

import asyncio
from contextlib import suppress

import pytest
from aiohttp import web

from bot.cli.ready import ready
from bot.errors import BotError
from bot.observability.health import Health, health_server
from bot.observability.health_client import MAX_ANSWER_BYTES
from bot.observability.metrics import measured
from tests.fakes.http import served


async def fine() -> Health:
    return Health(ok=True, detail="Connected.")


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "[::]"])
async def test_a_bot_that_listens_everywhere_is_asked_on_this_machine(host: str) -> None:
    async with health_server(listen=f"{host}:0", checks={"signal": fine}, metrics=measured) as port:
        assert await ready(f"{host}:{port}")


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


@pytest.mark.parametrize("body", [b"ok\n", b'{"ok": true}', b"[]", None])
async def test_something_else_that_answers_there_is_not_taken_for_the_bot(
    body: bytes | None,
) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            await response.write(body or bytes(MAX_ANSWER_BYTES))
            while body is None:  # an answer without an end
                await response.write(bytes(MAX_ANSWER_BYTES))
        return response

    async with served(answer) as port:
        with pytest.raises(BotError, match="not this bot"):
            await ready(f"127.0.0.1:{port}")
