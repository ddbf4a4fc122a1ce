"""httpx's transport on aiohttp's connection pool; `bot.http_client` has the reasons."""

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Final

import aiohttp
import httpx

from bot.http_client import new_session

IDLE_CONNECTION_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 10.0
LARGE_BODY_BYTES: Final = 2**20

GULP_SHARE: Final = 0.1
"""Of the time that a body has taken so far: how long the next gulp may wait."""

GULP_SECONDS_PER_STREAM: Final = 0.005
"""How long it may wait for each answer that is on its way: who is alone hardly waits at all."""

MAX_GULP_SECONDS: Final = 0.1


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends httpx's requests through aiohttp. Made with a running loop.

    Args:
        max_connections: open at once; further requests wait for one.
        silence_seconds: without a byte from the server, then httpx.ReadTimeout.
        tls: how to verify servers; None where only plain http is spoken.
    """

    def __init__(
        self, *, max_connections: int, silence_seconds: float, tls: ssl.SSLContext | None
    ) -> None:
        self._streams = _Streams()
        self._session = new_session(
            aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds
            ),
            connector=aiohttp.TCPConnector(
                limit=max_connections,
                keepalive_timeout=IDLE_CONNECTION_SECONDS,
                ssl=tls if tls is not None else True,
            ),
            auto_decompress=False,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the response's body is read from the connection as it is iterated."""
        with _httpx_errors():
            response = await self._session.request(
                request.method,
                str(request.url),
                data=_sendable(await request.aread()),
                headers=request.headers.multi_items(),
                allow_redirects=False,
            )
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=_Body(response, self._streams),
            request=request,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Streams:
    """How many answers are on their way."""

    count = 0

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """Count one inside the block."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class _Body(httpx.AsyncByteStream):
    """Reads a body in gulps, the larger the longer it takes and the more others there are.

    Nobody sees an answer before its end, so nobody needs each word of it at once; and to be woken
    for a word costs ten times what the word costs.
    """

    def __init__(self, response: aiohttp.ClientResponse, streams: _Streams) -> None:
        self._response = response
        self._streams = streams

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with _httpx_errors(), self._streams.one_more():
            async for piece in self._response.content.iter_any():
                yield piece
                by_load = self._streams.count * GULP_SECONDS_PER_STREAM
                by_time = (loop.time() - began) * GULP_SHARE
                await self._let_more_come(min(by_load, by_time, MAX_GULP_SECONDS))

    async def _let_more_come(self, seconds: float) -> None:
        """Leave what comes to the kernel for a while, unless the body has ended."""
        connection = self._response.connection
        if connection is None or connection.protocol is None:
            return
        connection.protocol.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            connection.protocol.resume_reading()

    async def aclose(self) -> None:
        # A connection whose answer was read to its end is back in the pool already.
        self._response.close()


def _sendable(body: bytes) -> bytes | io.BytesIO:
    """Wrap large bodies so that aiohttp streams them instead of warning about one big write."""
    return body if len(body) <= LARGE_BODY_BYTES else io.BytesIO(body)


@contextlib.asynccontextmanager
async def sent(
    transport: httpx.AsyncBaseTransport, request: httpx.Request
) -> AsyncIterator[httpx.Response]:
    """Send a request and provide its response, whose body is not read yet; closed at the end."""
    response = await transport.handle_async_request(request)
    try:
        yield response
    finally:
        await response.aclose()


async def bounded_body(response: httpx.Response, max_bytes: int) -> bytes:
    """Return the body, cut after so many bytes."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= max_bytes:
            break
    return bytes(body[:max_bytes])


@contextlib.contextmanager
def _httpx_errors() -> Iterator[None]:
    """Translate aiohttp's errors, most specific first."""
    try:
        yield
    except aiohttp.ClientConnectorDNSError as error:
        raise httpx.ConnectError("The server's name is unknown.") from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise httpx.ConnectError("The server's certificate is not trusted.") from error
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
        raise httpx.ConnectError("No connection to the server.") from error
    except TimeoutError as error:
        raise httpx.ReadTimeout("The server is silent.") from error
    except aiohttp.ClientOSError as error:
        raise httpx.ReadError("The connection broke.") from error
    except aiohttp.ClientError as error:
        raise httpx.RemoteProtocolError("The server does not speak proper HTTP.") from error
