"""The httpx2 transport over aiohttp, against real servers on loopback."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import httpx2
import pytest

from tests.fakes.accepting import close_listener
from tests.fakes.certificates import Authority
from tools.http import (
    BROKE_OFF,
    NO_ANSWER,
    NO_HTTP,
    NO_TLS,
    NOT_TRUSTED,
    REFUSED,
    UNKNOWN_HOST,
    AiohttpTransport,
    HopelessConnection,
    new_tls_context,
)

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"
SHORT_SECONDS: Final = 0.05
CANCELS: Final = 300
PIECES: Final = 200
CONNECTIONS: Final = 4


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(1)


def sends(data: bytes, *, then: Handler = hang_up) -> Handler:
    """Return a server that reads a request's head and sends these bytes."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            if then is not hang_up:
                await then(reader, writer)

    return send


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests until the client hangs up."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + b"0123456789")
            await writer.drain()


class Server:
    """A server on loopback that counts its open connections."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_closed = asyncio.Event()
        self.open = 0
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Server"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        try:
            yield self
        finally:
            await close_listener(server)
            await asyncio.gather(*self._tasks)

    async def all_closed(self) -> None:
        while self.open:
            self._all_closed.clear()
            await self._all_closed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        try:
            await self._handler(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self.open -= 1
            self._all_closed.set()


@contextlib.asynccontextmanager
async def client(
    tls: ssl.SSLContext | None = None, *, connect: float = 5.0, read: float = 5.0
) -> AsyncIterator[httpx2.AsyncClient]:
    transport = AiohttpTransport(max_connections=CONNECTIONS, silence_seconds=60.0, tls=tls)
    timeout = httpx2.Timeout(5.0, connect=connect, read=read)
    async with httpx2.AsyncClient(transport=transport, timeout=timeout) as opened:
        yield opened


async def failure(url: str, tls: ssl.SSLContext | None = None) -> httpx2.TransportError:
    async with client(tls, connect=2.0, read=2.0) as asking:
        with pytest.raises(httpx2.TransportError) as caught:
            await asking.get(url)
    return caught.value


async def test_refused_connection_is_a_connect_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = await failure(f"http://127.0.0.1:{port}/")
    assert type(error) is httpx2.ConnectError
    assert str(error) == REFUSED


async def test_unknown_host_is_a_connect_error() -> None:
    error = await failure("http://no-such-host.invalid/")
    assert type(error) is httpx2.ConnectError


async def test_invalid_host_name_is_hopeless() -> None:
    error = await failure("http://two..dots/")
    assert type(error) is HopelessConnection
    assert str(error) == UNKNOWN_HOST


@pytest.mark.parametrize(
    ("handler", "kind", "text"),
    [
        (hang_up, httpx2.RemoteProtocolError, NO_ANSWER),
        (sends(b"220 smtp\r\n\r\n"), httpx2.RemoteProtocolError, NO_HTTP),
        (sends(HEAD + b"01234"), httpx2.ReadError, BROKE_OFF),
    ],
)
async def test_broken_answers_have_their_own_errors(
    handler: Handler, kind: type[Exception], text: str
) -> None:
    async with Server(handler).running() as server:
        error = await failure(server.url)
    assert type(error) is kind
    assert str(error) == text


async def test_handshake_without_answer_is_a_connect_timeout() -> None:
    async with Server(silent).running() as server:
        url = server.url.replace("http:", "https:")
        async with client(new_tls_context(), connect=SHORT_SECONDS) as asking:
            with pytest.raises(httpx2.ConnectTimeout):
                await asking.get(url)


@pytest.mark.parametrize("handler", [silent, sends(HEAD + b"01234", then=silent)])
async def test_silence_is_a_read_timeout(handler: Handler) -> None:
    async with Server(handler).running() as server, client(read=SHORT_SECONDS) as asking:
        with pytest.raises(httpx2.ReadTimeout):
            await asking.get(server.url)


async def test_transport_has_its_own_timeout_for_requests_without_one() -> None:
    transport = AiohttpTransport(max_connections=1, silence_seconds=SHORT_SECONDS, tls=None)
    async with Server(silent).running() as server, transport:
        with pytest.raises(httpx2.ReadTimeout):
            await transport.handle_async_request(httpx2.Request("GET", server.url))


async def test_unknown_authority_is_hopeless() -> None:
    async with Server(answer, Authority().issue().context()).running() as server:
        error = await failure(server.url, new_tls_context())
    assert type(error) is HopelessConnection
    assert str(error) == NOT_TRUSTED


async def test_plain_http_on_an_https_address_is_hopeless() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with Server(plain).running() as server:
        error = await failure(server.url.replace("http:", "https:"), new_tls_context())
    assert type(error) is HopelessConnection
    assert str(error) == NO_TLS


async def test_hang_up_during_the_handshake_is_a_connect_error() -> None:
    async with Server(hang_up).running() as server:
        error = await failure(server.url.replace("http:", "https:"), new_tls_context())
    assert type(error) is httpx2.ConnectError
    assert str(error) == NO_ANSWER


@pytest.mark.parametrize("is_tls", [False, True])
async def test_cancelled_requests_leave_no_connection_behind(is_tls: bool) -> None:
    authority = Authority()
    tls = authority.client_context() if is_tls else None
    identity = authority.issue().context() if is_tls else None
    async with Server(answer, identity).running() as server:
        async with client(tls) as asking:
            for steps in range(CANCELS):
                request = asyncio.create_task(asking.get(server.url))
                for _ in range(steps % 40):
                    await asyncio.sleep(0)
                request.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await request
            answers = await asyncio.gather(*[asking.get(server.url) for _ in range(CONNECTIONS)])
            assert {one.content for one in answers} == {b"0123456789"}
        await server.all_closed()


async def test_body_is_read_in_gulps_and_complete() -> None:
    async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(PIECES):
            writer.write(b"%x\r\n%04d\r\n" % (4, number))
            await asyncio.sleep(0.001)  # the pace of the server
        writer.write(b"0\r\n\r\n")

    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with Server(sends(head, then=trickle)).running() as server, client() as asking:
        async with asking.stream("GET", server.url) as response:
            pieces = [piece async for piece in response.aiter_raw()]
    assert b"".join(pieces) == b"".join(b"%04d" % number for number in range(PIECES))
    assert len(pieces) < PIECES * 3 / 4


async def test_redirects_are_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n"
    async with Server(sends(moved)).running() as server, client() as asking:
        assert (await asking.get(server.url)).status_code == 302
