"""The httpx2 transport over aiohttp, against real servers on loopback."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final

import httpx2
import pytest

from tests.fakes.certificates import Authority
from tests.fakes.web_server import (
    Behaviour,
    Connection,
    answer,
    raw,
    redirect,
    silent,
    web_server,
)
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

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"
SHORT_SECONDS: Final = 0.05
CANCELS: Final = 300
PIECES: Final = 200
CONNECTIONS: Final = 4
HERE: Final = {"/": answer(b"0123456789", keep_alive=True)}


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


@pytest.mark.parametrize(
    ("url", "kind", "text"),
    [
        ("http://127.0.0.1:9/", httpx2.ConnectError, REFUSED),
        ("http://no-such-host.invalid/", httpx2.ConnectError, UNKNOWN_HOST),
        ("http://two..dots/", HopelessConnection, UNKNOWN_HOST),
    ],
)
async def test_each_kind_of_unreachable_server_has_its_own_error(
    url: str, kind: type[Exception], text: str
) -> None:
    error = await failure(url)
    assert type(error) is kind
    assert str(error).startswith(text)


@pytest.mark.parametrize(
    ("behaviour", "kind", "text"),
    [
        (raw(b""), httpx2.RemoteProtocolError, NO_ANSWER),
        (raw(b"220 smtp\r\n\r\n"), httpx2.RemoteProtocolError, NO_HTTP),
        (raw(HEAD + b"01234"), httpx2.ReadError, BROKE_OFF),
    ],
)
async def test_broken_answers_have_their_own_errors(
    behaviour: Behaviour, kind: type[Exception], text: str
) -> None:
    async with web_server({"/": behaviour}) as server:
        error = await failure(server.url("/"))
    assert type(error) is kind
    assert str(error) == text


async def test_handshake_without_answer_is_a_connect_timeout() -> None:
    async with web_server({}) as server:
        async with client(new_tls_context(), connect=SHORT_SECONDS) as asking:
            with pytest.raises(httpx2.ConnectTimeout):
                await asking.get(server.url("/").replace("http:", "https:"))


@pytest.mark.parametrize("behaviour", [silent(), silent(HEAD + b"01234")])
async def test_silence_is_a_read_timeout(behaviour: Behaviour) -> None:
    async with (
        web_server({"/": behaviour}) as server,
        client(read=SHORT_SECONDS) as asking,
    ):
        with pytest.raises(httpx2.ReadTimeout):
            await asking.get(server.url("/"))


async def test_transport_has_its_own_timeout_for_requests_without_one() -> None:
    transport = AiohttpTransport(max_connections=1, silence_seconds=SHORT_SECONDS, tls=None)
    async with web_server({"/": silent()}) as server, transport:
        with pytest.raises(httpx2.ReadTimeout):
            await transport.handle_async_request(httpx2.Request("GET", server.url("/")))


async def test_unknown_authority_is_hopeless() -> None:
    async with web_server(HERE, tls=Authority().issue().context()) as server:
        error = await failure(server.url("/"), new_tls_context())
    assert type(error) is HopelessConnection
    assert str(error) == NOT_TRUSTED


@pytest.mark.parametrize(
    ("answered", "kind", "text"),
    [
        (b"HTTP/1.1 400 No\r\ncontent-length: 0\r\n\r\n", HopelessConnection, NO_TLS),
        (b"", httpx2.ConnectError, NO_ANSWER),
    ],
)
async def test_server_without_tls_and_one_that_hangs_up_have_different_errors(
    answered: bytes, kind: type[Exception], text: str
) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answered)
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await failure(f"https://127.0.0.1:{port}/", new_tls_context())
    assert type(error) is kind
    assert str(error) == text


@pytest.mark.parametrize("is_tls", [False, True])
async def test_cancelled_requests_leave_no_connection_behind(is_tls: bool) -> None:
    authority = Authority()
    tls = authority.client_context() if is_tls else None
    identity = authority.issue().context() if is_tls else None
    async with web_server(HERE, tls=identity) as server:
        async with client(tls) as asking:
            for steps in range(CANCELS):
                request = asyncio.create_task(asking.get(server.url("/")))
                for _ in range(steps % 40):
                    await asyncio.sleep(0)
                request.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await request
            answers = await asyncio.gather(
                *[asking.get(server.url("/")) for _ in range(CONNECTIONS)]
            )
            assert {one.content for one in answers} == {b"0123456789"}
        await server.hung_up()


async def test_body_is_read_in_gulps_and_complete() -> None:
    async def trickle(connection: Connection) -> bool:
        await connection.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(PIECES):
            await connection.send(b"4\r\n%04d\r\n" % number)
            await asyncio.sleep(0.001)  # the pace of the server
        await connection.send(b"0\r\n\r\n")
        return False

    async with web_server({"/": trickle}) as server, client() as asking:
        async with asking.stream("GET", server.url("/")) as response:
            pieces = [piece async for piece in response.aiter_raw()]
    assert b"".join(pieces) == b"".join(b"%04d" % number for number in range(PIECES))
    assert len(pieces) < PIECES * 3 / 4


async def test_redirects_are_not_followed() -> None:
    async with web_server({"/": redirect("http://127.0.0.1:9/")}) as server, client() as asking:
        assert (await asking.get(server.url("/"))).status_code == 302
