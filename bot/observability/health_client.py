"""Asking the health server of a bot that runs on this machine."""

import asyncio
from typing import Final

from bot.observability.http_handlers import host_and_port

ANSWER_BYTES: Final = 64 * 1024


async def ask(listen: str, path: str) -> bytes:
    """Return the body of an answer, or as much of it as an answer may have.

    Args:
        listen: where the server listens, as `HEALTH__LISTEN` says it; on Linux, whoever listens
            everywhere (`0.0.0.0`, `::`) can be reached by that address from the same machine.
        path: what to ask for.

    Raises:
        OSError: nobody answers there.
    """
    host, port = host_and_port(listen)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        # After an answer to HTTP/1.0 the connection is closed.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {listen}\r\n\r\n".encode())
        answer = b""
        while len(answer) < ANSWER_BYTES and (more := await reader.read(ANSWER_BYTES)):
            answer += more
    finally:
        writer.transport.abort()
    return answer.partition(b"\r\n\r\n")[2]
