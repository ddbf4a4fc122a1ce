"""Somebody on the way to a TLS server: passes the handshake on, and damages what follows.

async with meddler(server_port) as port:
    ...  # connect to port instead
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.fakes.accepting import close_listener

HELLO: Final = 1
"""What a client sends before the server's side of the handshake."""
MAX_CHUNK: Final = 64 * 1024
CLOSE_SECONDS: Final = 5.0


@asynccontextmanager
async def meddler(port: int) -> AsyncIterator[int]:
    """Provide the port of a relay to a port on loopback."""
    pairs: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        pairs.add(task)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        sent = 0

        async def up() -> None:
            nonlocal sent
            while chunk := await reader.read(MAX_CHUNK):
                sent += 1
                to_server.write(chunk)

        async def down() -> None:
            while chunk := await from_server.read(MAX_CHUNK):
                damaged = chunk[:-1] + bytes([chunk[-1] ^ 1])
                writer.write(damaged if sent > HELLO else chunk)

        directions = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            to_server.close()
            writer.close()
            await asyncio.gather(
                *directions, to_server.wait_closed(), writer.wait_closed(), return_exceptions=True
            )
            pairs.discard(task)

    listener = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        await close_listener(listener)
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*pairs)
