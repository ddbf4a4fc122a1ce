"""Outgoing HTTP: sessions of aiohttp, with the errors of httpx2, and with its API for MCP.

All requests of the bot go over aiohttp. The model client sends through `AiohttpTransport.sent`. The
MCP SDK demands httpx2's API, so the transport has that as well; its objects take as long as the
request itself. httpx2's own connection pool uses twice the CPU per request. httpx-aiohttp reports
every failure to connect as a time-out.
"""

import asyncio
import contextlib
import errno
import io
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import aiohttp
import certifi
import httpx2
from yarl import URL

IDLE_CONNECTION_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 10.0
LARGE_BODY_BYTES: Final = 2**20

GULP_SHARE: Final = 0.1
"""Longest wait for the next gulp, as a share of the time that the body has taken so far."""
GULP_SECONDS_PER_STREAM: Final = 0.005
"""Longest wait for the next gulp, for each response that is being read."""
MAX_GULP_SECONDS: Final = 0.1

REFUSED: Final = "It refuses connections. Is the server running there?"
UNKNOWN_HOST: Final = "There is no host of this name."
NO_NAME_SERVER: Final = "Its name could not be looked up: no name server answers."
NO_ROUTE: Final = "This machine has no route to it."
CONNECT_TIMEOUT: Final = "No connection to it could be opened in time."
NOT_OPENED: Final = "No connection to it could be opened."
NO_RESOURCES: Final = "This machine cannot open more connections now."
NO_ANSWER: Final = "It closed the connection without an answer."
BROKE_OFF: Final = "The connection broke."
NO_HTTP: Final = "It does not speak HTTP."
NO_TLS: Final = "It does not speak TLS as the bot does. If it speaks plain HTTP, use http://."
NOT_TRUSTED: Final = (
    "Its certificate comes from no public authority and from none that this machine trusts."
)
KEY_NOT_ACCEPTED: Final = "Its TLS key is not one that may be used now."

_BY_ERRNO: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ECONNREFUSED: REFUSED,
        errno.EHOSTUNREACH: NO_ROUTE,
        errno.ENETUNREACH: NO_ROUTE,
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


class HopelessConnection(httpx2.ConnectError):
    """No connection, and another attempt at the same address would not help."""


class PassingTrouble(httpx2.ConnectError):
    """No connection for a reason that says nothing about the address."""


def new_tls_context() -> ssl.SSLContext:
    """Return a context that trusts certifi's and the system's authorities.

    The environment changes nothing: `SSL_CERT_FILE` and `SSLKEYLOGFILE` are ignored.
    """
    context = ssl.create_default_context(cafile=certifi.where())
    paths = ssl.get_default_verify_paths()
    if Path(paths.openssl_cafile).is_file():
        context.load_verify_locations(cafile=paths.openssl_cafile)
    if Path(paths.openssl_capath).is_dir():
        context.load_verify_locations(capath=paths.openssl_capath)
    # Undo the effect of SSLKEYLOGFILE; typeshed does not know that None is possible.
    context.keylog_filename = None  # type: ignore[assignment]
    return context


def new_session(timeout: aiohttp.ClientTimeout, **settings: Any) -> aiohttp.ClientSession:
    """Return a session of aiohttp without cookies and proxies; the caller closes it."""
    return aiohttp.ClientSession(
        timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, **settings
    )


async def whole_body(
    response: aiohttp.ClientResponse, max_bytes: int, too_long: Exception
) -> bytes:
    """Return the body.

    Raises:
        Exception: `too_long`, as soon as the body exceeds `max_bytes`.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            raise too_long
    return bytes(body)


class Request(NamedTuple):
    """A request: a POST if it has a body, otherwise a GET."""

    url: str
    headers: Mapping[str, str]
    content: bytes = b""


async def bounded_body(response: "Response", max_bytes: int) -> bytes:
    """Return the body, cut off after `max_bytes`."""
    body = bytearray()
    async for piece in response:
        body += piece
        if len(body) >= max_bytes:
            break
    return bytes(body[:max_bytes])


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends httpx2's requests through a session of aiohttp. Create it with a running loop.

    It follows no redirects and decompresses nothing. Time-outs in a request's extensions, which
    `httpx2.AsyncClient` always sets, replace those of the transport.

    Args:
        max_connections: open at once; further requests wait for one.
        silence_seconds: time without a byte from the server before httpx2.ReadTimeout.
        tls: verifies servers; None where only plain http is spoken.
    """

    def __init__(
        self, *, max_connections: int, silence_seconds: float, tls: ssl.SSLContext | None
    ) -> None:
        self._being_read: set[Response] = set()
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

    @contextlib.asynccontextmanager
    async def sent(self, request: Request) -> AsyncIterator["Response"]:
        """Send a request and provide its response before the body is read; close it at the end.

        Raises:
            httpx2.TransportError: the request or a part of the answer got lost.
        """
        method = "POST" if request.content else "GET"
        response = await self._send(
            method, request.url, request.headers, request.content, self._session.timeout
        )
        del request  # its body may be large, and is not needed while the answer is read
        try:
            yield response
        finally:
            await response.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of httpx2; the response reads its body from the connection."""
        timeout = self._session.timeout
        if (said := request.extensions.get("timeout")) is not None:
            timeout = aiohttp.ClientTimeout(
                total=None, sock_connect=said["connect"], sock_read=said["read"]
            )
        response = await self._send(
            request.method,
            str(request.url),
            request.headers.multi_items(),
            await request.aread(),
            timeout,
        )
        return httpx2.Response(
            response.status, headers=response.raw_headers, stream=response, request=request
        )

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | list[tuple[str, str]],
        body: bytes,
        timeout: aiohttp.ClientTimeout,
    ) -> "Response":
        with httpx2_errors():
            response = await self._session.request(
                method,
                _as_spelled(url),
                data=_sendable(body),
                headers=headers,
                allow_redirects=False,
                timeout=timeout,
            )
        return Response(response, self._being_read)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class Response(httpx2.AsyncByteStream):
    """An answer. Iterate over it to read its body in gulps, which raises httpx2.TransportError.

    Gulps grow with the body's age and the number of other responses: nothing acts on an answer
    before its end, and waking up for a word costs ten times as much CPU as the word itself.
    """

    def __init__(self, response: aiohttp.ClientResponse, being_read: "set[Response]") -> None:
        self.status = response.status
        self.headers = response.headers
        self.raw_headers = response.raw_headers
        self._response = response
        self._being_read = being_read

    @property
    def is_success(self) -> bool:
        """Whether the status says that the request was accepted."""
        return 200 <= self.status < 300

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._being_read.add(self)
        try:
            with httpx2_errors():
                async for piece in self._response.content.iter_any():
                    yield piece
                    by_load = len(self._being_read) * GULP_SECONDS_PER_STREAM
                    by_age = (loop.time() - began) * GULP_SHARE
                    await self._let_more_come(min(by_load, by_age, MAX_GULP_SECONDS))
        finally:
            self._being_read.discard(self)

    async def _let_more_come(self, seconds: float) -> None:
        """Leave new bytes in the kernel for a while, unless the body has ended."""
        connection = self._response.connection
        if connection is None or connection.protocol is None:
            return
        connection.protocol.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            connection.protocol.resume_reading()

    async def aclose(self) -> None:
        """Give the connection back, or close it if the body has not ended."""
        # A connection whose body was read to its end is back in the pool already.
        self._response.close()


@lru_cache(maxsize=64)
def _as_spelled(url: str) -> URL:
    """Parse an address without changing its spelling, because requests may be signed."""
    return URL(url, encoded=True)


def _sendable(body: bytes) -> bytes | io.BytesIO | None:
    """Wrap large bodies so that aiohttp streams them instead of warning about one big write."""
    return io.BytesIO(body) if len(body) > LARGE_BODY_BYTES else body or None


@contextlib.contextmanager
def httpx2_errors() -> Iterator[None]:
    """Translate aiohttp's errors, most specific first; no text names a host or quotes a server."""
    try:
        yield
    except UnicodeError as error:  # an invalid host name, such as one with two dots in a row
        raise HopelessConnection(UNKNOWN_HOST) from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError) as error:
        raise _connect_error(error) from error
    except aiohttp.ConnectionTimeoutError as error:
        raise httpx2.ConnectTimeout(CONNECT_TIMEOUT) from error
    except TimeoutError as error:
        raise httpx2.ReadTimeout("The server is silent.") from error
    except aiohttp.ServerDisconnectedError as error:
        raise httpx2.RemoteProtocolError(NO_ANSWER) from error
    except (aiohttp.ClientOSError, aiohttp.ClientPayloadError) as error:
        raise httpx2.ReadError(BROKE_OFF) from error
    except aiohttp.ClientError as error:
        raise httpx2.RemoteProtocolError(NO_HTTP) from error


def _connect_error(
    error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError,
) -> httpx2.ConnectError:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate_error(error.certificate_error)
    code = error.os_error.errno
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return httpx2.ConnectError(NO_NAME_SERVER if code == socket.EAI_AGAIN else UNKNOWN_HOST)
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return _handshake_error(error.os_error)
    if code in _SHORTAGES:
        return PassingTrouble(NO_RESOURCES)
    if isinstance(error.os_error, ConnectionResetError):  # has no errno during a handshake
        return httpx2.ConnectError(NO_ANSWER)
    return httpx2.ConnectError(_BY_ERRNO.get(code or 0, NOT_OPENED))


def _certificate_error(error: Exception) -> httpx2.ConnectError:
    """Say why a certificate was refused.

    Only OpenSSL's own verdicts have a code. A context that pins keys raises errors without one,
    and may accept the same key a moment later.
    """
    code = getattr(error, "verify_code", None)
    if code is None:
        return PassingTrouble(KEY_NOT_ACCEPTED)
    return HopelessConnection(_BY_VERIFY_CODE.get(code, NOT_TRUSTED))


def _handshake_error(error: OSError) -> httpx2.ConnectError:
    """Distinguish a server without TLS from a hang-up during the handshake."""
    if isinstance(error, ssl.SSLError) and error.reason in _OTHER_PROTOCOL:
        return HopelessConnection(NO_TLS)
    return httpx2.ConnectError(NO_ANSWER if isinstance(error, ssl.SSLEOFError) else NO_TLS)
