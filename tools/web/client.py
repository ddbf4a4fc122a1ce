"""HTTP for tools: every request passes the guard, and everything about the answer is bounded.

It takes no proxy from the environment, keeps no cookies, tells nobody where it came from, and
follows redirects by itself, each checked anew.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

import httpcore
import httpx

from tools.errors import ToolError
from tools.web.decoding import Decoder
from tools.web.guard import (
    GuardedBackend,
    Origin,
    Permits,
    checked,
    may_be_asked,
    origin_of,
    redirected,
)
from tools.web.lookup import Lookup, Resolver
from tools.web.stream import BoundedStream

MAX_REDIRECTS: Final = 5
_MAX_CONNECTIONS: Final = 20
_KEEP_ALIVE_SECONDS: Final = 5.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PACKING_BYTES: Final = 65_536  # what compression may add to a body
_LEAST_PIECE_BYTES: Final = 256  # what a chunk counts for at least: each costs the event loop time
_NAME: Final = "signal-tee-bot"


@dataclass(frozen=True, slots=True)
class FetchBounds:
    """How long a request may wait, in seconds.

    Attributes:
        connect: for the lookup and the connection; as much again for the handshake of TLS.
        silence: without a byte.
        total: with all redirects.
    """

    connect: float = 5.0
    silence: float = 5.0
    total: float = 15.0


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer, whatever its status.

    Attributes:
        status: of HTTP.
        headers: by their names in lower case.
        body: decoded, at most as long as asked.
        cut: whether the body was longer.
        url: where it came from, after redirects.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool
    url: str


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: httpx.URL
    headers: Mapping[str, str]
    body: bytes | None

    def redirected(self, status: int, location: str) -> "_Request":
        """Return what a browser would ask for next (RFC 9110, 15.4; Fetch, 4.4)."""
        url = redirected(self.url, location)
        following = replace(self, url=url)
        if origin_of(url) != origin_of(self.url):
            following = replace(following, headers={})  # they may hold a key for the first origin
        if status == 303 or (status in {301, 302} and self.method == "POST"):
            following = replace(following, method="GET", body=None)
        return following

    def all_headers(self) -> list[tuple[bytes, bytes]]:
        headers = {
            "host": self.url.netloc.decode("ascii"),
            "user-agent": _NAME,
            "accept": "*/*",
            "accept-encoding": "gzip",
        }
        if self.body is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        headers |= {name.lower(): value for name, value in self.headers.items()}
        return [(name.encode(), value.encode()) for name, value in headers.items()]


class _Connections:
    """Connections, kept for a while for the next request to their origin.

    In place of httpcore's pool: of a request that is cancelled at the wrong moment (a person's
    `!stop`, a time-out) that one keeps a connection which nobody gets any more, until none is left.

    Args:
        backend: opens them.
    """

    def __init__(self, backend: GuardedBackend) -> None:
        self._backend = backend
        self._places = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._idle: deque[httpcore.AsyncHTTPConnection] = deque()

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        """The system's authorities and certifi's; a bot that asks nothing reads none."""
        return httpcore.default_ssl_context()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: httpcore.URL,
        *,
        headers: Sequence[tuple[bytes, bytes]],
        content: bytes | None,
        extensions: dict[str, object],
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request; what was not read of its answer closes the connection."""
        async with self._places:
            connection = await self._connection(url.origin)
            try:
                async with connection.stream(
                    method, url, headers=headers, content=content, extensions=extensions
                ) as response:
                    yield response
            finally:
                if connection.is_idle() and not connection.is_closed():
                    self._idle.append(connection)
                else:
                    await connection.aclose()

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.popleft().aclose()

    async def _connection(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        """Return one that nobody else uses; those that are not fit for use any more are closed."""
        found = None
        for _ in range(len(self._idle)):
            connection = self._idle.popleft()
            if connection.has_expired() or len(self._idle) >= _MAX_CONNECTIONS:
                await connection.aclose()
            elif found is None and connection.can_handle_request(origin):
                found = connection
            else:
                self._idle.append(connection)
        return found or httpcore.AsyncHTTPConnection(
            origin=origin,
            ssl_context=self._certificates,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
            network_backend=self._backend,
        )


class WebClient:
    """Asks the web; made by `open_web_client`.

    Args:
        public: connections that the guard has checked.
        operators: connections to `operator_origins` only, which the operator has chosen.
        operator_origins: may be asked as they stand, but nothing is redirected to them.
        bounds: how long a request may wait.
    """

    def __init__(
        self,
        public: _Connections,
        operators: _Connections,
        operator_origins: Collection[Origin],
        bounds: FetchBounds,
    ) -> None:
        self._public = public
        self._operators = operators
        self._operator_origins = operator_origins
        self._bounds = bounds

    async def request(
        self,
        url: str,
        *,
        method: str = "GET",
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        max_bytes: int = 2 * 2**20,
        cut_long: bool = False,
    ) -> WebAnswer:
        """Send a request, follow redirects, and return the answer, whatever its status.

        Args:
            url: http or https.
            method: of HTTP.
            params: added to the URL's query.
            headers: sent to the URL's own origin only.
            form: sent as the body.
            max_bytes: of the body, as sent and decoded.
            cut_long: return the beginning of a longer body instead of failing.

        Raises:
            AddressRefused: the guard refuses the URL or where it redirects to.
            ToolError: there is no proper answer in time and size; the text says why.
        """
        target = checked(url)
        if params:
            target = checked(str(target.copy_merge_params(params)))
        body = None if form is None else urlencode(form).encode()
        request = _Request(method, target, headers or {}, body)
        try:
            async with asyncio.timeout(self._bounds.total) as bound:
                return await self._follow(request, max_bytes, cut_long=cut_long)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ToolError(
                f"{origin_of(target)[1]} took over {self._bounds.total:g} seconds, so I gave up."
            ) from error

    async def _follow(self, request: _Request, max_bytes: int, *, cut_long: bool) -> WebAnswer:
        chosen = origin_of(request.url) in self._operator_origins
        connections = self._operators if chosen else self._public
        for _ in range(1 + MAX_REDIRECTS):
            answer = await self._exchange(connections, request, max_bytes, cut_long=cut_long)
            if isinstance(answer, WebAnswer):
                return answer
            request, connections = answer, self._public
        raise ToolError(f"The page redirects more than {MAX_REDIRECTS} times.")

    async def _exchange(
        self,
        connections: _Connections,
        request: _Request,
        max_bytes: int,
        *,
        cut_long: bool,
    ) -> WebAnswer | _Request:
        """Return an answer, or what to ask for instead."""
        with _sentences(origin_of(request.url)[1], self._bounds):
            async with self._stream(connections, request) as response:
                headers = _headers(response)
                location = headers.get("location")
                if response.status in _REDIRECTS and location:
                    return request.redirected(response.status, location)
                decoder = await _read(response, headers, max_bytes)
                if decoder.full and not cut_long:
                    raise ToolError(f"The answer is larger than {_size(max_bytes)}.")
                return WebAnswer(
                    response.status, headers, decoder.finish(), decoder.full, str(request.url)
                )

    @asynccontextmanager
    async def _stream(
        self, connections: _Connections, request: _Request
    ) -> AsyncIterator[httpcore.Response]:
        """Send a request; what was not read of its answer closes the connection."""
        scheme, host, port = origin_of(request.url)
        async with connections.stream(
            request.method,
            httpcore.URL(scheme=scheme, host=host, port=port, target=request.url.raw_path),
            headers=request.all_headers(),
            content=request.body,
            extensions={
                "timeout": {
                    "connect": self._bounds.connect,
                    "read": self._bounds.silence,
                    "write": self._bounds.silence,
                }
            },
        ) as response:
            yield response


@asynccontextmanager
async def open_web_client(
    *,
    operator_urls: Collection[str] = (),
    permits: Permits = may_be_asked,
    lookup: Lookup | None = None,
    bounds: FetchBounds | None = None,
) -> AsyncIterator[WebClient]:
    """Provide a client; its connections are closed at the end.

    Args:
        operator_urls: their origins (scheme, host, port) may be asked as they stand, private or
            not; what they redirect to may not.
        permits: which addresses may be connected to.
        lookup: in place of the system's resolver.
        bounds: how long a request may wait.

    Raises:
        AddressRefused: an operator's URL is not valid.
    """
    lookup = lookup or Resolver().look_up
    origins = frozenset(origin_of(checked(url)) for url in operator_urls)
    public = _Connections(GuardedBackend(permits=permits, lookup=lookup))
    operators = _Connections(GuardedBackend(permits=_any_address, lookup=lookup))
    async with aclosing(public), aclosing(operators):
        yield WebClient(public, operators, origins, bounds or FetchBounds())


def _any_address(_: object) -> bool:
    return True


async def _read(response: httpcore.Response, headers: Mapping[str, str], max_bytes: int) -> Decoder:
    """Read a body until its end, or until it is longer than it may be."""
    decoder = Decoder(headers.get("content-encoding", ""), max_bytes=max_bytes)
    connection = response.extensions["network_stream"]
    if isinstance(connection, BoundedStream):
        connection.allow(2 * (max_bytes + _PACKING_BYTES))
    received = 0
    async for piece in response.aiter_stream():
        decoder.feed(piece)
        received += max(len(piece), _LEAST_PIECE_BYTES)
        if decoder.full:
            break
        if received > max_bytes + _PACKING_BYTES:
            raise ToolError(f"The answer is larger than {_size(max_bytes)}.")
    return decoder


def _headers(response: httpcore.Response) -> dict[str, str]:
    """Return headers by their lower-case names, those of one name joined (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for name, value in response.headers:
        key, text = name.decode("ascii").lower(), value.decode("utf-8", errors="replace")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@contextmanager
def _sentences(host: str, bounds: FetchBounds) -> Iterator[None]:
    """Translate httpcore's errors, most specific first."""
    try:
        yield
    except httpcore.ConnectTimeout as error:
        raise ToolError(f"No connection to {host} within {bounds.connect:g} seconds.") from error
    except httpcore.ConnectError as error:
        raise ToolError(_no_connection(host, error.__context__)) from error
    except (httpcore.ReadTimeout, httpcore.WriteTimeout) as error:
        raise ToolError(f"{host} was silent for {bounds.silence:g} seconds.") from error
    except httpcore.NetworkError as error:
        raise ToolError(f"The connection to {host} broke; try again.") from error
    except httpcore.RemoteProtocolError as error:
        raise ToolError(f"{host} broke off or does not speak proper HTTP.") from error
    except httpcore.LocalProtocolError as error:
        raise ToolError("A header of the request holds what HTTP cannot carry.") from error


def _no_connection(host: str, cause: BaseException | None) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"The certificate of {host} is not valid, so I did not ask it anything."
    if isinstance(cause, ssl.SSLError):
        return f"No secure connection to {host} could be made."
    return f"No connection to {host} could be made."


def _size(count: int) -> str:
    return f"{count / 2**20:.3g} MB" if count >= 2**20 else f"{count:,} bytes"
