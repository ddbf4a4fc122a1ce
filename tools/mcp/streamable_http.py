"""A server that has a URL and speaks streamable HTTP.

(https://modelcontextprotocol.io/specification, Transports, Streamable HTTP.) The operator's
address is allowed as it stands and redirects are not followed, TLS is verified, the proxy settings
of the environment do not count. The SDK bounds one server-sent event; one JSON answer is bounded
here. A request that is not answered in time is given up alone, not the session.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, cast

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from tools.mcp.errors import CredentialsRefused, RedirectRefused
from tools.mcp.transport import MAX_MESSAGE_BYTES

GOODBYE_SECONDS: Final = 1.0
"""For telling a server that its session is over."""
LISTEN_SECONDS: Final = 300.0
"""How long a server may say nothing on the stream of its notifications."""
_SPARE_SECONDS: Final = 2.0
_LIMITS: Final = httpx2.Limits(max_connections=32)


@asynccontextmanager
async def http_streams(
    url: str, *, headers: Mapping[str, str], timeout_seconds: float
) -> AsyncIterator[TransportStreams]:
    """Speak with a server's URL.

    Args:
        url: as the operator wrote it.
        headers: sent with every request.
        timeout_seconds: for connecting, and for one call.
    """
    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            timeout=timeout_seconds,
            transport=_Guarded(timeout_seconds),
            trust_env=False,
        ) as client,
        streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams,
    ):
        yield streams


class _Guarded(httpx2.AsyncHTTPTransport):
    """Bounds what the SDK leaves unbounded.

    Args:
        timeout_seconds: for one call; what is silent for longer is given up.
    """

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(trust_env=False, limits=_LIMITS)
        self._silence_seconds = {
            "GET": LISTEN_SECONDS,
            "POST": timeout_seconds + _SPARE_SECONDS,
            "DELETE": GOODBYE_SECONDS,
        }

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions["timeout"]["read"] = self._silence_seconds[request.method]
        try:
            response = await super().handle_async_request(request)
        except httpx2.ReadTimeout:
            return httpx2.Response(HTTPStatus.GATEWAY_TIMEOUT, request=request)
        try:
            _check(response)
        except BaseException:
            await response.aclose()
            raise
        if _is_event_stream(response):
            return response
        response.stream = _BoundedBody(cast("httpx2.AsyncByteStream", response.stream))
        return response


def _check(response: httpx2.Response) -> None:
    if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise CredentialsRefused(
            f"The MCP server does not accept the credentials (HTTP {response.status_code})."
        )
    if response.is_redirect:
        raise RedirectRefused("The MCP server's URL redirects, which is not followed.")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("compressed although it was not asked for")


def _is_event_stream(response: httpx2.Response) -> bool:
    return bool(response.headers.get("content-type", "").startswith("text/event-stream"))


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that fails beyond MAX_MESSAGE_BYTES, which fails the one request it answers."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError("longer than is taken in")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
