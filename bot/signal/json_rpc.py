"""Client connection for newline-delimited JSON-RPC 2.0, as signal-cli's daemon speaks it.

One JSON value per line in both directions. Requests run concurrently on the other side, so answers
are matched by id, in any order. Built on `asyncio.Protocol`: an answer wakes its caller straight
from the socket, and the bot can pause reading without a read-ahead buffer, so that unread messages
wait on Signal's server.

signal-cli may fall silent for some seconds and then go on without the requests of that time. A late
answer alone does not show that: a slow send may take a minute. So a guarded request takes a
sentinel along in the same write: a `version`, which signal-cli answers within milliseconds in any
case. If the sentinel is answered, signal-cli has taken the request too, and is only slow. If later
requests are answered and the sentinel is not, signal-cli passed both over.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import structlog

from bot.signal.errors import SignalPassedOver, SignalTimeout, SignalUnavailable

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
READ_BYTES: Final = 256 * 1024
CONNECT_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 1.0
"""Time between two checks for requests that were passed over."""
MAX_LOOKS: Final = 2
"""A request counts as passed over after so many looks in a row.

Several, because answers to simultaneous requests come in any order, milliseconds apart."""

UNREADABLE: Final = "signal-cli gave an answer that cannot be read."

log = structlog.get_logger()


class JsonRpcError(Exception):
    """The answer is an error. Its text leaves out `message`, which may name a person.

    Args:
        data: came with the error.
        message: signal-cli's words; only their meaning may be used, never show them.
    """

    def __init__(self, code: int, data: object, message: str = "") -> None:
        super().__init__(f"The request was answered with error {code}.")
        self.code = code
        self.data = data
        self.message = message


class JsonRpcConnection(asyncio.Protocol):
    """Single connection, from `connect` until it is lost.

    Args:
        on_notification: takes method and params of each notification, in order. A line that is
            too long or not JSON-RPC counts as a message without content.

    Attributes:
        lost: set when the connection is lost.
    """

    def __init__(
        self,
        on_notification: Callable[[object, object], object],
        look_seconds: float,
    ) -> None:
        self._on_notification = on_notification
        self._look_seconds = look_seconds
        self._lines = LineBuffer(MAX_LINE_BYTES)
        self._last_id = 0
        self._last_answered = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._sentinels: set[int] = set()  # without an answer so far
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self.lost = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        on_notification: Callable[[object, object], object] = lambda *_: None,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> AsyncIterator[Self]:
        """Connect to `unix:/path` or `tcp://host:port` for the time of the block.

        Raises:
            SignalUnavailable: nothing listens there, or the connection took too long.
            ValueError: the address is of another form.
        """
        loop = asyncio.get_running_loop()
        address = parse_address(url)
        connection = cls(on_notification, look_seconds)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if isinstance(address, str):
                    await loop.create_unix_connection(lambda: connection, address)
                else:
                    await loop.create_connection(lambda: connection, *address)
        except OSError as error:  # TimeoutError is one, too
            raise SignalUnavailable("signal-cli cannot be reached. See SIGNAL__URL.") from error
        try:
            yield connection
        finally:
            if connection._transport is not None:
                connection._transport.abort()
            await connection.lost.wait()

    async def call(
        self, method: str, params: dict[str, Any], *, seconds: float, guarded: bool = False
    ) -> Any:
        """Make a request and return its result.

        Args:
            guarded: end the wait early if signal-cli turns out to have passed the request over.

        Raises:
            SignalUnavailable: the connection is lost or congested; the request did not go out.
            SignalPassedOver: signal-cli answered later requests and not this one.
            SignalTimeout: no answer in time, or the connection was lost before it.
            JsonRpcError: the answer is an error.
        """
        number = 0
        try:
            async with asyncio.timeout(seconds):
                await self._writable.wait()
                number = self._request(method, params, guarded=guarded)
                if guarded:
                    self._look_later(number, 0)
                answer = await self._waiting[number]
        except TimeoutError as error:
            if not number:
                raise SignalUnavailable("signal-cli takes no requests.") from error
            raise SignalTimeout("signal-cli did not answer in time.") from error
        finally:
            self._waiting.pop(number, None)
            self._sentinels.discard(number + 1)
        return _result(answer)

    def _look_later(self, number: int, looks: int) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._look_seconds, self._look, number, looks)

    def _look(self, number: int, looks: int) -> None:
        """Fail a request that was passed over; look again later if that is unknown."""
        answered = self._waiting.get(number)
        if number + 1 not in self._sentinels or answered is None or answered.done():
            return
        # While nothing is read or written, a missing answer proves nothing.
        if self._transport is not None and self._writable.is_set() and not self.reading_paused:
            looks += self._last_answered > number + 1
            if looks >= MAX_LOOKS:
                log.warning("signal.passed_over")
                answered.set_exception(SignalPassedOver("signal-cli did not take the request."))
                return
            # Ask again, because the bot may ask nothing else that shows the end of a silence.
            self._transport.write(self._line("version", {}))
        self._look_later(number, looks)

    @property
    def reading_paused(self) -> bool:
        """Whether reading is paused."""
        return self._transport is not None and not self._transport.is_reading()

    def pause_reading(self) -> None:
        """Read nothing more, including answers, until `resume_reading`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Process each complete line."""
        for line in self._lines.feed(data):
            self._take(line)

    def pause_writing(self) -> None:
        """Hold back requests, because the other side does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Release held requests."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight, which may have been done."""
        if exc is not None and self._transport is not None:
            # After a failed write, asyncio drops unread lines. Read them: they exist only here.
            descriptor = self._transport.get_extra_info("socket").fileno()
            with suppress(OSError):
                while data := os.read(descriptor, READ_BYTES):
                    self.data_received(data)
        self.lost.set()
        self._writable.set()
        for answered in self._waiting.values():
            if not answered.done():
                lost = SignalTimeout("The connection to signal-cli was lost before the answer.")
                answered.set_exception(lost)

    def _request(self, method: str, params: dict[str, Any], *, guarded: bool) -> int:
        """Write a request, perhaps with a sentinel, and return its id."""
        if self._transport is None or self._transport.is_closing():
            raise SignalUnavailable("The connection to signal-cli is lost.")
        line = self._line(method, params)
        number = self._last_id
        if guarded:
            line += self._line("version", {})
            self._sentinels.add(self._last_id)
        self._transport.write(line)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return number

    def _line(self, method: str, params: dict[str, Any]) -> bytes:
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        return json.dumps(request, separators=(",", ":")).encode() + b"\n"

    def _take(self, line: bytes | None) -> None:
        try:
            value = json.loads(line or b"")
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._on_notification("receive", None)
        elif "method" in value:
            self._on_notification(value["method"], value.get("params"))
        elif isinstance(number := value.get("id"), int) and number <= self._last_id:
            self._last_answered = max(self._last_answered, number)
            self._sentinels.discard(number)
            answered = self._waiting.get(number)
            if answered is not None and not answered.done():
                answered.set_result(value)


def parse_address(url: str) -> str | tuple[str, int]:
    """Parse `unix:/path` or `tcp://host:port`; raise ValueError for other forms."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return parts.path
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return parts.hostname, parts.port
    raise ValueError("Expected unix:/path/socket or tcp://host:port.")


def text_in(answer: object, name: str, pattern: re.Pattern[str] | None = None) -> str:
    """Return a text in an answer; SignalTimeout if it is missing or does not fit the pattern."""
    text = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(text, str) or not (pattern is None or pattern.fullmatch(text)):
        raise SignalTimeout(UNREADABLE)
    return text


class LineBuffer:
    """Cuts a stream of bytes into lines and holds at most one unfinished line.

    Args:
        limit: bytes; a longer line is dropped and returned as None.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that these bytes complete, without their newlines."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(b"".join(self._parts) if self._size <= self._limit else None)
            self._parts, self._size = [], 0
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts = []
        elif part:
            self._parts.append(part)


def _result(answer: dict[str, Any]) -> Any:
    if "error" not in answer:
        return answer.get("result")
    error = answer["error"]
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        raise JsonRpcError(INTERNAL_ERROR, None)
    raise JsonRpcError(error["code"], error.get("data"), str(error.get("message", "")))
