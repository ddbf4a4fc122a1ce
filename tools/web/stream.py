"""A connection that takes only so much from a server before somebody looks at it."""

import asyncio
import ssl
from typing import Any, Final

import httpcore

from tools.errors import ToolError

MAX_HEADER_BYTES: Final = 65_536
_READ_BYTES: Final = 16_384  # what one reading may cost the event loop: it can be 3,000 chunks


class BoundedStream(httpcore.AsyncNetworkStream):
    """Bounds what is read after each request: headers first, and then what `allow` adds.

    HTTP has room for endless interim answers (1xx), which never reach who sent the request.

    Args:
        stream: the connection.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = MAX_HEADER_BYTES

    def allow(self, count: int) -> None:
        """Let that many more bytes through."""
        self._left += count

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what is there, as httpcore has it.

        Raises:
            ToolError: there is more than was allowed.
        """
        if self._left <= 0:
            raise ToolError("The server sends too much around its answer, so I gave up.")
        received = await self._stream.read(min(max_bytes, _READ_BYTES), timeout)
        self._left -= len(received)
        return received

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write, as httpcore has it; a new request has a new allowance."""
        self._left = MAX_HEADER_BYTES
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return the connection under TLS, as bounded as this one."""
        try:
            secured = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except asyncio.CancelledError:
            # httpcore closes the connection behind every failure but this one.
            await self._stream.aclose()
            raise
        return BoundedStream(secured)

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore wants to know about the connection."""
        return self._stream.get_extra_info(info)
