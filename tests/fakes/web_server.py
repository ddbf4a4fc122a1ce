"""A web server on loopback that breaks any rule that a test chooses.

    async with web_server({"/page": answer(b"<p>Hello</p>"), "/slow": dripping(...)}) as server:
        ...  # server.url("/page"), server.asked, await server.hung_up()

A behaviour is what happens after a request has been read; the connection is closed after it
unless it is kept alive by `answer(..., keep_alive=True)`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from tests.fakes.accepting import close_listener

CLOSE_SECONDS: Final = 5.0
_DRIP_SECONDS: Final = 0.02
_HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """Request as it came in; header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def parameters(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection and request that a behaviour answers."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_hung_up(self) -> None:
        await self.reader.read()


Behaviour = Callable[[Connection], Awaitable[bool]]
"""Answers a request; returns whether the connection stays open for the next."""


@dataclass(slots=True)
class WebServer:
    """Running server: its address and the requests so far."""

    host: str
    port: int
    scheme: str
    behaviours: dict[str, Behaviour]
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    open: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    def url(self, path: str, *, host: str | None = None) -> str:
        return f"{self.scheme}://{host or self.host}:{self.port}{path}"

    async def hung_up(self) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(CLOSE_SECONDS):
            while self.open:
                await asyncio.wait(set(self.open))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open[task] = writer
        self.connections += 1
        try:
            with suppress(ConnectionError, EOFError):
                while await self._serve(Connection(reader, writer)):
                    pass
        finally:
            writer.close()
            del self.open[task]

    async def _serve(self, connection: Connection) -> bool:
        request = await _request(connection.reader)
        self.asked.append(request)
        self.arrived.set()
        behave = self.behaviours.get(request.path, answer(b"", status=404))
        return await behave(connection)


@asynccontextmanager
async def web_server(
    behaviours: Mapping[str, Behaviour],
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[WebServer]:
    """Serve while the context is open; then close hanging connections."""
    server = WebServer(host, 0, "https" if tls else "http", dict(behaviours))
    listener = await asyncio.start_server(server.accept, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await close_listener(listener)
        for writer in server.open.values():
            writer.transport.abort()
        await server.hung_up()


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, body)


def answer(
    body: bytes,
    content_type: str | None = _HTML,
    *,
    status: int = 200,
    keep_alive: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Behaviour:
    """Answer properly."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    if content_type is not None:
        lines.append(f"Content-Type: {content_type}")
    if not keep_alive:
        lines.append("Connection: close")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"

    async def behave(connection: Connection) -> bool:
        await connection.send(head + body)
        return keep_alive

    return behave


def redirect(location: str, status: int = 302) -> Behaviour:
    """Send the client elsewhere."""
    return answer(b"", status=status, headers={"Location": location})


def raw(data: bytes) -> Behaviour:
    """Send anything and close."""

    async def behave(connection: Connection) -> bool:
        await connection.send(data)
        return False

    return behave


def reset(data: bytes) -> Behaviour:
    """Send the beginning of an answer and reset the connection."""

    async def behave(connection: Connection) -> bool:
        await connection.send(data)
        connection.writer.transport.abort()
        return False

    return behave


def endless(head: bytes, piece: bytes) -> Behaviour:
    """Send a piece again and again, as fast as it is taken, until the client hangs up."""

    async def behave(connection: Connection) -> bool:
        await connection.send(head)
        while True:
            await connection.send(piece)

    return behave


def dripping(head: bytes, piece: bytes) -> Behaviour:
    """Send a piece again and again, with pauses, until the client hangs up."""

    async def behave(connection: Connection) -> bool:
        await connection.send(head)
        while True:
            await connection.send(piece)
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRIP_SECONDS):
                    await connection.until_hung_up()
                    return False

    return behave


def silent(head: bytes = b"") -> Behaviour:
    """Send a beginning and then nothing until the client hangs up."""

    async def behave(connection: Connection) -> bool:
        await connection.send(head)
        await connection.until_hung_up()
        return False

    return behave
