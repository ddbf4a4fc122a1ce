"""An HTTP proxy for programs behind walls: what they ask for passes the guard, as all else does.

It knows CONNECT, and requests to http:// addresses, which it passes on as they are but for what is
meant for a proxy. It looks names up itself, and connects to the address that it has checked.

Sources: RFC 9110, 7.6 and 9.3.6; RFC 9112, 3.2.
"""

import asyncio
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NoReturn

from tools.errors import ToolError
from tools.web.guard import (
    AddressRefused,
    Permits,
    checked,
    may_be_asked,
    origin_of,
    permitted_addresses,
)
from tools.web.lookup import Lookup

PORTS: Final = frozenset({80, 443})
"""Of the web. At others there are mail servers, databases and what else trusts who connects."""
MAX_TOLD: Final = 5
_READ_BYTES: Final = 65_536
_CLOSE_SECONDS: Final = 5.0
_END: Final = b"\r\n\r\n"
_LINE: Final = re.compile(rb"([A-Z]{1,20}) ([!-~]+) HTTP/1\.([01])")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_FOR_A_PROXY: Final = frozenset(
    {b"connection", b"host", b"keep-alive", b"proxy-authorization", b"proxy-connection", b"te"}
)
"""Fields that are not passed on; `Connection` and `Host` are written anew."""


@dataclass(frozen=True, slots=True)
class ProxyBounds:
    """How much programs may ask through one proxy.

    Attributes:
        at_once: connections at the same time; others wait.
        connections: in all.
        size: bytes in both directions, of all connections together.
        head_bytes: of a request's line and fields.
        head_seconds: until they are there.
        connect_seconds: for the lookup and the connection.
    """

    at_once: int = 16
    connections: int = 1_000
    size: int = 256 * 2**20
    head_bytes: int = 16_384
    head_seconds: float = 10.0
    connect_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class _Request:
    """What a program asks for.

    Attributes:
        host: to connect to.
        port: there.
        head: what is sent first; empty where both are connected (CONNECT).
    """

    host: str
    port: int
    head: bytes


class _Refused(Exception):
    """Answered with a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Proxy:
    """Serves those who connect to one listening socket.

    Args:
        lookup: finds a name's addresses.
        permits: which addresses may be connected to.
        ports: which ports there.
        bounds: how much may be asked.
    """

    def __init__(
        self,
        lookup: Lookup,
        *,
        permits: Permits = may_be_asked,
        ports: frozenset[int] = PORTS,
        bounds: ProxyBounds | None = None,
    ) -> None:
        self._lookup = lookup
        self._permits = permits
        self._ports = ports
        self._bounds = bounds or ProxyBounds()
        self._left = self._bounds.size
        self._refusals: dict[str, None] = {}

    @property
    def refusals(self) -> Sequence[str]:
        """Why something was refused, in sentences, each once, and only the first ones."""
        return tuple(self._refusals)

    async def serve(self, listening: socket.socket) -> None:
        """Serve until this is cancelled, or until there were too many connections.

        Args:
            listening: where programs connect; it stays open.
        """
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        places = asyncio.Semaphore(self._bounds.at_once)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._bounds.connections):
                await places.acquire()
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError:  # no descriptors are left: whoever asks next gets none either
                    self._tell("The bot could take no more connections.")
                    return
                serving = tasks.create_task(self._serve(connection))
                serving.add_done_callback(lambda _: places.release())
            self._tell(f"A command may open {self._bounds.connections:,} connections.")

    async def _serve(self, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(
                sock=connection, limit=self._bounds.head_bytes
            )
        except OSError:
            connection.close()
            return
        try:
            with suppress(OSError, EOFError):
                await self._answer(reader, writer)
                await _close(writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await self._request(reader)
            asked_reader, asked_writer = await self._connected(request)
        except _Refused as refusal:
            self._tell(str(refusal))
            writer.write(_refusing(refusal))
            return
        try:
            if request.head:
                asked_writer.write(request.head)
            else:
                writer.write(b"HTTP/1.1 200 Connection established" + _END)
            await self._pass_on((reader, asked_writer), (asked_reader, writer))
        finally:
            asked_writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader) -> _Request:
        """Read what is asked for.

        Raises:
            _Refused: it is nothing that a proxy is asked, or may ask.
            EOFError: there is nothing.
        """
        try:
            async with asyncio.timeout(self._bounds.head_seconds):
                head = await reader.readuntil(_END)
        except asyncio.LimitOverrunError:
            raise _Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "A request's head is too long."
            ) from None
        except TimeoutError:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "A request took too long.") from None
        try:
            request = _parsed(head)
        except AddressRefused as refusal:
            raise _Refused(HTTPStatus.FORBIDDEN, str(refusal)) from None
        if request.port not in self._ports:
            allowed = " and ".join(map(str, sorted(self._ports)))
            raise _Refused(
                HTTPStatus.FORBIDDEN,
                f"Port {request.port} of {request.host}: only the ports {allowed} may be asked.",
            )
        return request

    async def _connected(
        self, request: _Request
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address of a host that takes the connection.

        Raises:
            _Refused: one of them is not permitted, or none takes it in time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.connect_seconds):
                for address in await self._addresses(request.host):
                    with suppress(OSError):
                        return await asyncio.open_connection(address, request.port)
        raise _Refused(HTTPStatus.BAD_GATEWAY, f"No connection to {request.host} could be made.")

    async def _addresses(self, host: str) -> Sequence[str]:
        try:
            return await permitted_addresses(host, permits=self._permits, lookup=self._lookup)
        except AddressRefused as refusal:
            raise _Refused(HTTPStatus.FORBIDDEN, str(refusal)) from None
        except ToolError as error:
            raise _Refused(HTTPStatus.BAD_GATEWAY, str(error)) from None

    async def _pass_on(
        self, *directions: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        """Copy in both directions until both have ended, or one of them breaks."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for reader, writer in directions:
                    tasks.create_task(self._copy(reader, writer))
        except* OSError:
            pass

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            self._left -= len(data)
            if self._left < 0:
                self._tell(f"A command may send and get {self._bounds.size / 2**20:.3g} MB.")
                raise ConnectionAbortedError
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    def _tell(self, sentence: str) -> None:
        if len(self._refusals) < MAX_TOLD:
            self._refusals[sentence] = None


def _parsed(head: bytes) -> _Request:
    """Return what is asked for.

    Raises:
        AddressRefused: not an address of the web.
        _Refused: not a request.
    """
    first, *fields = head.removesuffix(_END).split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        _refuse_to_read()
    method, target, version = line.groups()
    if method == b"CONNECT":
        url = checked(f"https://{target.decode()}")
        if url.raw_path != b"/":
            _refuse_to_read()
        return _Request(*origin_of(url)[1:], b"")
    url = checked(target.decode())
    if url.scheme != "http":
        raise AddressRefused("An https address is asked for with CONNECT.")
    passed_on = [
        b"%b %b HTTP/1.%b" % (method, url.raw_path, version),
        b"Host: " + url.netloc,
        *(field for field in fields if _name(field) not in _FOR_A_PROXY),
        b"Connection: close",
    ]
    return _Request(*origin_of(url)[1:], b"\r\n".join(passed_on) + _END)


def _name(field: bytes) -> bytes:
    parts = _FIELD.fullmatch(field)
    return parts[1].lower() if parts is not None else _refuse_to_read()


def _refuse_to_read() -> NoReturn:
    raise _Refused(HTTPStatus.BAD_REQUEST, "A request was no proper HTTP of a proxy's.")


def _refusing(refusal: _Refused) -> bytes:
    said = f"{refusal}\n".encode(errors="replace")
    lines = (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(said)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + _END + said


async def _close(writer: asyncio.StreamWriter) -> None:
    """Send what is still to be sent."""
    writer.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()
