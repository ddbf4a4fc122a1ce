"""HTTP for tools: the guard checks every connection, and every answer is bounded.

Each exchange has a connection of its own, so nothing remains of one that was cancelled. The client
uses no proxy from the environment, keeps no cookies and sends no referrer. It follows redirects by
itself, because aiohttp would send keys along to another origin.
"""

import asyncio
import ssl
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, NamedTuple
from urllib.parse import urlencode

import aiohttp
import httpx2
from yarl import URL

from tools import ledger
from tools.base import ToolError
from tools.http import new_session, new_tls_context
from tools.web.connection import MAX_HEAD_BYTES, Allowance, Lookup, Resolver, Way, too_slow
from tools.web.guard import Permits, checked, may_be_asked, origin_of, redirected

MAX_REDIRECTS: Final = 5
_MAX_CONNECTIONS: Final = 20
_PACKING_BYTES: Final = 65_536  # what compression may add to a body
_MAX_SHOWN: Final = 8  # characters of a coding's name; never repeat a stranger's sentence
_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's code for "with a gzip header"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {"user-agent": "signal-tee-bot", "accept": "*/*", "accept-encoding": "gzip"}
_usual_tls: Final = cache(new_tls_context)  # read with the first https address


@dataclass(frozen=True, slots=True)
class FetchBounds:
    """How long a request may wait, in seconds.

    Attributes:
        connect: for the lookup; as much again for the connection with its TLS handshake.
        silence: without a byte.
        total: with all redirects.
    """

    connect: float = 5.0
    silence: float = 5.0
    total: float = 15.0


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer with any status.

    Attributes:
        headers: by their names in lower case.
        cut: whether the body was longer.
        url: the source, after redirects.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool
    url: str


Purpose = tuple[Literal["search", "page", "place"], str]
"""Kind of data that a request sends, and its words; see `tools.ledger`."""
A_PAGE: Final[Purpose] = ("page", "")


class _Request(NamedTuple):
    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    body: bytes | None
    purpose: Purpose

    def redirected(self, status: int, location: str) -> "_Request":
        """Return the next request of a browser (RFC 9110, 15.4; Fetch, 4.4)."""
        url = redirected(self.url, location)
        following = self._replace(url=url)
        if origin_of(url) != origin_of(self.url):
            following = following._replace(headers={})  # they may hold a key for the first origin
        if status == 303 or (status in {301, 302} and self.method == "POST"):
            following = following._replace(method="GET", body=None)
        return following


class WebClient:
    """Asks the web.

    Args:
        operator_urls: their origins (scheme, host, port) may be asked at any address, but not by
            way of a redirect.
        lookup: replaces the system's resolver.
        tls: verifies servers, instead of the usual authorities.

    Raises:
        AddressRefused: an operator's URL is not valid.
    """

    def __init__(
        self,
        *,
        operator_urls: Collection[str] = (),
        permits: Permits = may_be_asked,
        lookup: Lookup | None = None,
        bounds: FetchBounds | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        lookup = lookup or Resolver().look_up
        self._bounds = bounds or FetchBounds()
        self._public = Way(permits, lookup, self._bounds.connect)
        self._operators = Way(lambda _: True, lookup, self._bounds.connect)
        self._operator_origins = {origin_of(checked(url)) for url in operator_urls}
        self._tls = tls
        self._places = asyncio.Semaphore(_MAX_CONNECTIONS)

    async def request(
        self,
        url: str,
        *,
        purpose: Purpose = A_PAGE,
        method: str = "GET",
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        max_bytes: int = 2 * 2**20,
        cut_long: bool = False,
    ) -> WebAnswer:
        """Send a request, follow redirects, and return the answer, also one with an error status.

        Args:
            purpose: noted in the ledger; a page is noted by its own address.
            headers: sent to the URL's own origin only.
            max_bytes: of the body, as sent and decoded.
            cut_long: return the beginning of a longer body instead of failing.

        Raises:
            AddressRefused: the guard refuses the URL or the target of a redirect.
            ToolError: no proper answer in time and size; the text gives the reason.
        """
        target = checked(url)
        if params:
            target = checked(str(target.copy_merge_params(params)))
        body = None if form is None else urlencode(form).encode()
        own_headers = {name.lower(): value for name, value in (headers or {}).items()}
        request = _Request(method, target, own_headers, body, purpose)
        try:
            async with asyncio.timeout(self._bounds.total) as bound:
                answer = await self._follow(request, max_bytes)
        except TimeoutError as error:
            if not bound.expired():
                raise
            raise ToolError(
                f"{origin_of(target)[1]} took over {self._bounds.total:g} seconds, so I gave up."
            ) from error
        if answer.cut and not cut_long:
            raise ToolError(_too_large(max_bytes))
        return answer

    async def _follow(self, request: _Request, max_bytes: int) -> WebAnswer:
        is_operators = origin_of(request.url) in self._operator_origins
        way = self._operators if is_operators else self._public
        for _ in range(1 + MAX_REDIRECTS):
            async with self._places:
                answer = await self._exchange(way, request, max_bytes)
            if isinstance(answer, WebAnswer):
                return answer
            request, way = answer, self._public
        raise ToolError(f"The page redirects more than {MAX_REDIRECTS} times.")

    async def _exchange(self, way: Way, request: _Request, max_bytes: int) -> WebAnswer | _Request:
        """Return an answer, or the request that a redirect asks for."""
        scheme, host, _ = origin_of(request.url)
        kind, words = request.purpose
        address = str(request.url)
        ledger.note(kind, host, words if kind != "page" else address, len(address))
        allowance = Allowance()
        tls = (self._tls or _usual_tls()) if scheme == "https" else None
        form = {} if request.body is None else {"content-type": "application/x-www-form-urlencoded"}

        async def send_once(
            sent: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            # aiohttp itself would repeat a request after its own errors.
            with _sentences(host, self._bounds, allowance):
                return await send(sent)

        session = new_session(
            aiohttp.ClientTimeout(
                total=None, sock_connect=self._bounds.connect, sock_read=self._bounds.silence
            ),
            connector=way.connector(host, allowance, tls),
            middlewares=(send_once,),
            auto_decompress=False,
            max_line_size=2 * MAX_HEAD_BYTES,
            max_field_size=2 * MAX_HEAD_BYTES,
            max_headers=MAX_HEAD_BYTES,
        )
        async with session:
            response = await session.request(
                request.method,
                URL(str(request.url), encoded=True),
                data=request.body,
                headers={**_HEADERS, **form, **request.headers},
                allow_redirects=False,
            )
            try:
                if response.status < 200:
                    raise ToolError(_no_http(host))
                headers = _headers(response)
                location = headers.get("location")
                if response.status in _REDIRECTS and location:
                    return request.redirected(response.status, location)
                allowance.left += 2 * (max_bytes + _PACKING_BYTES)
                with _sentences(host, self._bounds, allowance):
                    coding = headers.get("content-encoding", "")
                    body, cut = await _body(response, coding, max_bytes)
                return WebAnswer(response.status, headers, body, cut, str(request.url))
            finally:
                response.close()  # reading a rest could take long


async def _body(
    response: aiohttp.ClientResponse, coding: str, max_bytes: int
) -> tuple[bytes, bool]:
    """Return the decoded body, and whether it is longer than `max_bytes` (RFC 9110, 8.4)."""
    coding = coding.strip().lower()
    is_packed = coding not in {"", "identity"}
    if is_packed and coding not in {"gzip", "x-gzip"}:
        name = f" ({coding})" if coding.isalnum() and len(coding) <= _MAX_SHOWN else ""
        raise ToolError(f"The answer is compressed in a way that I cannot read{name}.")
    body, received = bytearray(), 0
    inflate = zlib.decompressobj(_GZIP) if is_packed else None
    async for piece in response.content.iter_any():
        room = max_bytes + 1 - len(body)
        if inflate is None:
            body += piece[:room]
        else:
            try:
                body += inflate.decompress(piece, room)
            except zlib.error as error:
                raise ToolError("The answer is compressed wrongly and cannot be read.") from error
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), True
        received += len(piece)
        if received > max_bytes + _PACKING_BYTES:
            raise ToolError(_too_large(max_bytes))
    if inflate is not None and received and not inflate.eof:
        raise ToolError("The answer ends too early; try again.")
    return bytes(body), False


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return headers by their lower-case names; join those of one name (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        key, text = name.lower(), value.encode(errors="replace").decode()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


@contextmanager
def _sentences(host: str, bounds: FetchBounds, allowance: Allowance) -> Iterator[None]:
    """Translate aiohttp's errors into sentences for the model."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        match error:  # most specific first
            case _ if allowance.used_up:
                sentence = "The server sends too much around its answer, so I gave up."
            case aiohttp.ConnectionTimeoutError():
                sentence = too_slow(host, bounds.connect)
            case TimeoutError():
                sentence = f"{host} was silent for {bounds.silence:g} seconds."
            case aiohttp.ClientConnectorCertificateError():
                sentence = f"The certificate of {host} is not valid, so I did not ask it anything."
            case aiohttp.ClientConnectorSSLError():
                sentence = f"No secure connection to {host} could be made."
            case aiohttp.ClientConnectorError():
                sentence = f"No connection to {host} could be made."
            case OSError():  # also aiohttp.ClientOSError
                sentence = f"The connection to {host} broke; try again."
            case aiohttp.ClientError():
                sentence = _no_http(host)
            case _:
                sentence = "A header of the request holds what HTTP cannot carry."
        raise ToolError(sentence) from error


def _no_http(host: str) -> str:
    return f"{host} broke off or does not speak proper HTTP."


def _too_large(max_bytes: int) -> str:
    size = f"{max_bytes / 2**20:.3g} MB" if max_bytes >= 2**20 else f"{max_bytes:,} bytes"
    return f"The answer is larger than {size}."
