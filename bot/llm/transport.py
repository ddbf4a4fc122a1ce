"""httpx's transport on aiohttp's connection pool; `bot.http_client` has the reasons."""

import asyncio
import contextlib
import errno
import io
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import aiohttp
import httpx
from yarl import URL

from bot.http_client import new_session

IDLE_CONNECTION_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 10.0
LARGE_BODY_BYTES: Final = 2**20

GULP_SHARE: Final = 0.1
"""Of the time that a body has taken so far: how long the next gulp may wait."""

GULP_SECONDS_PER_STREAM: Final = 0.005
"""How long it may wait for each answer that is on its way: who is alone hardly waits at all."""

MAX_GULP_SECONDS: Final = 0.1

REFUSED: Final = "It refuses connections. Is the model's server running there?"
UNKNOWN_HOST: Final = "There is no host of this name."
NO_NAME_SERVER: Final = "Its name could not be looked up: no name server answers."
NO_ROUTE: Final = "This machine has no way to it."
SILENT: Final = f"No connection to it came about within {CONNECT_SECONDS:g} seconds."
NOT_OPENED: Final = "No connection to it could be opened."
NO_MEANS: Final = "This machine has no room for another connection now."
NO_ANSWER: Final = "It closed the connection without an answer."
BROKE: Final = "The connection broke."
NO_HTTP: Final = "It does not speak HTTP."
NO_TLS: Final = "It does not speak TLS as the bot does. If it speaks plain HTTP, use http://."
NOT_TRUSTED: Final = "Its certificate comes from no public authority that the bot knows."
KEY_NOT_ACCEPTED: Final = "Its TLS key is not one that may be used now."

_BY_ERRNO: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ECONNREFUSED: REFUSED,
        errno.EHOSTUNREACH: NO_ROUTE,
        errno.ENETUNREACH: NO_ROUTE,
        errno.ECONNRESET: NO_ANSWER,
    }
)
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

# OpenSSL's X509_V_ERR_..., see X509_STORE_CTX_get_error(3).
_BY_VERIFY_CODE: Final[Mapping[int, str]] = MappingProxyType(
    {
        9: "Its certificate is not valid yet. Is the clock of this machine right?",
        10: "Its certificate has expired.",
        62: "Its certificate is for another name.",
        64: "Its certificate is for another name.",
    }
)
_OTHER_PROTOCOL: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})


class HopelessConnection(httpx.ConnectError):
    """What listens there cannot be used under this address, however often it is tried."""


class PassingTrouble(httpx.ConnectError):
    """There is no connection now, for a reason that says nothing against the address."""


@lru_cache(maxsize=64)
def _as_spelled(url: str) -> URL:
    """Return an address as it is: another spelling of `%3A` would not be what was signed."""
    return URL(url, encoded=True)


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
                _as_spelled(str(request.url)),
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
    """Translate aiohttp's errors, most specific first; no text names a host or quotes a server."""
    try:
        yield
    except UnicodeError as error:  # a name that cannot be looked up, such as one with two dots
        raise HopelessConnection(UNKNOWN_HOST) from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError) as error:
        raise _not_connected(error) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx.ConnectTimeout(SILENT) from error
    except TimeoutError as error:
        raise httpx.ReadTimeout("The server is silent.") from error
    except aiohttp.ServerDisconnectedError as error:
        raise httpx.RemoteProtocolError(NO_ANSWER) from error
    except aiohttp.ClientOSError as error:
        raise httpx.ReadError(BROKE) from error
    except aiohttp.ClientError as error:
        raise httpx.RemoteProtocolError(NO_HTTP) from error


def _not_connected(
    error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError,
) -> httpx.ConnectError:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _not_trusted(error.certificate_error)
    code = error.os_error.errno
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return httpx.ConnectError(NO_NAME_SERVER if code == socket.EAI_AGAIN else UNKNOWN_HOST)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return _no_tls(error.os_error)
    if code in _SHORTAGES:
        return PassingTrouble(NO_MEANS)
    return httpx.ConnectError(_BY_ERRNO.get(code or 0, NOT_OPENED))


def _not_trusted(error: Exception) -> httpx.ConnectError:
    """Say what is wrong with a certificate; only OpenSSL's own verdicts have a code.

    Whoever pins keys may accept this one a moment later.
    """
    code = getattr(error, "verify_code", None)
    if code is None:
        return PassingTrouble(KEY_NOT_ACCEPTED)
    return HopelessConnection(_BY_VERIFY_CODE.get(code, NOT_TRUSTED))


def _no_tls(error: OSError) -> httpx.ConnectError:
    """Tell a server that speaks no TLS from one that went away during the handshake."""
    if isinstance(error, ssl.SSLError) and error.reason in _OTHER_PROTOCOL:
        return HopelessConnection(NO_TLS)
    return httpx.ConnectError(NO_ANSWER if isinstance(error, ssl.SSLEOFError) else NO_TLS)
