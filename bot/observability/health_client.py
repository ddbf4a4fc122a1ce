"""Client of the health server of a bot on this machine. Imports little: it runs often."""

import asyncio
from typing import Final

MAX_ANSWER_BYTES: Final = 64 * 1024


def host_and_port(listen: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 address is in brackets there."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


async def ask(listen: str, path: str) -> bytes:
    """Return the body of an answer, cut off after `MAX_ANSWER_BYTES`.

    Args:
        listen: `HEALTH__LISTEN`; Linux connects to this machine for `0.0.0.0` and `::`.
        path: such as `/readyz`.

    Raises:
        OSError: no server answers there.
    """
    host, port = host_and_port(listen)
    reader, writer = await asyncio.open_connection(host, port)
    try:
        # After an answer to HTTP/1.0 the server closes the connection.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {listen}\r\n\r\n".encode())
        answer = b""
        while len(answer) < MAX_ANSWER_BYTES and (more := await reader.read(MAX_ANSWER_BYTES)):
            answer += more
    finally:
        writer.transport.abort()
    return answer.partition(b"\r\n\r\n")[2]
