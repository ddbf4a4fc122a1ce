"""A small HTTP/1.1 server (RFC 9112) on asyncio streams, with a bound on everything.

It serves the health endpoints and the demo's offline assistant on a machine's own interfaces. It
knows keep-alive and answers in one piece or as a chunked stream; it knows no TLS and takes no
chunked requests.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog

from bot.observability.http_handlers import Handler, Request, Response, phrase, plain

LINGER_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 2.0
BACKLOG: Final = 1024
ACCEPT_AGAIN_SECONDS: Final = 1.0
MAX_LENGTH_DIGITS: Final = 18

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server bears.

    Attributes:
        header_bytes: request line and headers together; more is answered 431.
        body_bytes: of a request; more is answered 413.
        head_seconds: from the first byte of a request to the end of its head, and for the first
            byte of a connection; then the connection closes.
        idle_seconds: from one answer to the first byte of the next request, and for a body.
        write_seconds: for a client to take what is written before the next piece.
        connections: open at once. For one more, that one is closed which has waited for its client
            longest; it is answered 503 where all others wait for this server.
        grace_seconds: for running requests to end when the server stops.
    """

    header_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    head_seconds: float = 10.0
    idle_seconds: float = 60.0
    write_seconds: float = 30.0
    connections: int = 2048
    grace_seconds: float = 1.0


@asynccontextmanager
async def serve(
    handler: Handler, *, host: str, port: int, limits: Limits | None = None
) -> AsyncIterator[int]:
    """Answer requests while the context is open, and yield the port.

    At the end no new connection is taken, idle ones are closed, and running requests have
    `limits.grace_seconds` before they are cancelled.

    Args:
        handler: answers requests; what it raises is logged and answered 500.
        host: name or address to listen on.
        port: 0 takes a free one.
        limits: what the server bears; the defaults when None.

    Raises:
        OSError: the address cannot be listened on.
    """
    tasks = asyncio.TaskGroup()
    connections = _Connections(handler, limits or Limits(), tasks)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    failure: Exception | None = None
    async with tasks:
        accepting = tasks.create_task(connections.accept_from(listener))
        try:
            yield listener.getsockname()[1]
        except Exception as error:
            failure = error  # raised below: the task group would wrap it into a group
        finally:
            accepting.cancel()
            await asyncio.wait({accepting})
            listener.close()
        await connections.finish()
    if failure is not None:
        raise failure


class _ClientGone(ConnectionError):
    """The client does not take what is written."""


class _Refused(Exception):
    """The request breaks a rule; it is answered with this status and the connection closes."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Head:
    """Request line and headers."""

    method: str
    path: str
    version: str
    headers: Mapping[str, str]

    @property
    def keeps_alive(self) -> bool:
        """Whether the client may send another request on this connection."""
        wish = self.headers.get("connection", "").lower()
        return wish == "keep-alive" if self.version == "HTTP/1.0" else wish != "close"

    @property
    def body_length(self) -> int:
        """Bytes that follow the head; raises _Refused where that cannot be told."""
        if "transfer-encoding" in self.headers:
            raise _Refused(411)
        length = self.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise _Refused(400)
        if len(length) > MAX_LENGTH_DIGITS:
            raise _Refused(413)
        return int(length)


class _Connections:
    """The open connections of one server."""

    def __init__(self, handler: Handler, limits: Limits, tasks: asyncio.TaskGroup) -> None:
        self.limits = limits
        self._handler = handler
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()
        self._places: set[asyncio.StreamWriter] = set()
        self._idle: set[asyncio.StreamWriter] = set()
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # for their clients, in this order
        self._stopping = False

    async def accept_from(self, listener: socket.socket) -> None:
        """Take connections, one at a time, until cancelled.

        asyncio's own server takes all that wait in one go, beyond any limit, and where there are
        no descriptors left it tries and logs as often in one go.
        """
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("http.not_accepted", reason=error.strerror)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            await loop.connect_accepted_socket(self._protocol, client)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=self.limits.header_bytes)
        return asyncio.StreamReaderProtocol(reader, self.accept)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a new connection, or say that there are too many."""
        if not self._stopping and len(self._places) >= self.limits.connections:
            self._give_up_one()
        if self._stopping or len(self._places) >= self.limits.connections:
            writer.write(_last_answer(503))
            writer.close()
            return
        self._places.add(writer)
        task = self._tasks.create_task(self._run(reader, writer))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _give_up_one(self) -> None:
        """Close the connection that has waited for its client longest, if any waits."""
        for writer in self._waiting:
            self._leave(writer)
            return

    def _leave(self, writer: asyncio.StreamWriter) -> None:
        self._places.discard(writer)
        self._idle.discard(writer)
        self._waiting.pop(writer, None)
        writer.transport.abort()

    @contextmanager
    def _waits(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Note that a connection waits for its client inside; then its place may be taken."""
        self._waiting[writer] = None
        try:
            yield
        finally:
            self._waiting.pop(writer, None)

    async def finish(self) -> None:
        """Close what is idle, give the rest its grace time, then cancel it."""
        self._stopping = True
        for writer in self._idle:
            writer.close()
        if self._running:
            await asyncio.wait(self._running, timeout=self.limits.grace_seconds)
        for task in self._running:
            task.cancel()

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seconds = self.limits.head_seconds
        try:
            while not self._stopping and await self._exchange(reader, writer, seconds):
                seconds = self.limits.idle_seconds
            with self._waits(writer):
                await _close(writer)
        except OSError:
            pass  # the client went away, or was too slow (TimeoutError is an OSError)
        finally:
            self._leave(writer)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
    ) -> bool:
        """Answer one request that begins in time; return whether another may follow."""
        try:
            with self._waits(writer):
                head = await self._head(reader, writer, seconds)
                async with asyncio.timeout(self.limits.idle_seconds):
                    body = await self._read_body(head, reader, writer)
        except asyncio.IncompleteReadError:
            return False
        except _Refused as refused:
            await self._refuse(refused.status, reader, writer)
            return False
        request = Request(head.method, head.path, head.headers, body)
        return await self._answer(head, await self._handle(request), writer)

    async def _head(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
    ) -> _Head:
        """Read the head of a request, whose first byte has some seconds to come."""
        self._idle.add(writer)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds) as bound:
            first = await reader.readexactly(1)
            bound.reschedule(loop.time() + self.limits.head_seconds)
            head = await _read_head(first, reader)
        self._idle.discard(writer)
        return head

    async def _read_body(
        self, head: _Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        length = head.body_length
        if length > self.limits.body_bytes:
            raise _Refused(413)
        if length and head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await reader.readexactly(length)

    async def _handle(self, request: Request) -> Response:
        try:
            return await self._handler(request)
        except Exception:  # the boundary: one request's bug is that request's answer
            log.exception("http.handler_failed")
            return plain(500)

    async def _answer(self, head: _Head, response: Response, writer: asyncio.StreamWriter) -> bool:
        body = response.body
        keep_alive = head.keeps_alive and not self._stopping
        if isinstance(body, bytes):
            start = _head_of(response, keep_alive=keep_alive)
            await self._write(writer, start if head.method == "HEAD" else start + body)
            return keep_alive
        chunked = head.version != "HTTP/1.0"  # else the closed connection is the end
        keep_alive = keep_alive and chunked
        await self._write(writer, _head_of(response, keep_alive=keep_alive, chunked=chunked))
        return await self._stream(body, writer, chunked=chunked) and keep_alive

    async def _stream(
        self, pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter, *, chunked: bool
    ) -> bool:
        """Write the pieces as they come; return whether the stream was whole."""
        try:
            async for piece in pieces:
                if piece:
                    framed = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
                    await self._write(writer, framed)
        except _ClientGone:
            raise
        except Exception:  # the boundary again; without its end the client sees a cut stream
            log.exception("http.stream_failed")
            return False
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()
        if chunked:
            await self._write(writer, b"0\r\n\r\n")
        return True

    async def _refuse(
        self, status: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer a request that was not read to its end.

        What the client still sends is read for a moment, for a connection that is closed with
        unread bytes is reset, and the client may lose the answer.
        """
        await self._write(writer, _last_answer(status))
        writer.write_eof()
        with self._waits(writer):
            async with asyncio.timeout(LINGER_SECONDS):
                while await reader.read(self.limits.header_bytes):
                    pass

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        try:
            with self._waits(writer):
                async with asyncio.timeout(self.limits.write_seconds):
                    await writer.drain()
        except OSError as error:
            raise _ClientGone from error


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    async with asyncio.timeout(CLOSE_SECONDS):
        await writer.wait_closed()


async def _read_head(first: bytes, reader: asyncio.StreamReader) -> _Head:
    try:
        rest = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as overrun:
        raise _Refused(431) from overrun
    lines = (first + rest).decode("latin-1").split("\r\n")[:-2]
    match lines[0].split(" "):
        case [method, target, ("HTTP/1.1" | "HTTP/1.0") as version] if method and target:
            path, _, _ = target.partition("?")
            return _Head(method, path, version, _parse_headers(lines[1:]))
        case _:
            raise _Refused(400)


def _parse_headers(lines: list[str]) -> dict[str, str]:
    """Return the headers; a repeated one is joined, so a repeated length is no number."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Refused(400)
        key, value = name.lower(), value.strip()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers


def _last_answer(status: int) -> bytes:
    """Return a plain answer after which the connection closes."""
    return _head_of(plain(status), keep_alive=False) + phrase(status)


def _head_of(response: Response, *, keep_alive: bool, chunked: bool = False) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        *(f"{name}: {value}" for name, value in response.headers.items()),
    ]
    if isinstance(response.body, bytes):
        lines.append(f"Content-Length: {len(response.body)}")
    elif chunked:
        lines.append("Transfer-Encoding: chunked")
    lines.append(f"Connection: {'keep-alive' if keep_alive else 'close'}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
