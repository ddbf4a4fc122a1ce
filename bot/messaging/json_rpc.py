"""A client connection for newline-delimited JSON-RPC 2.0, as signal-cli's daemon speaks it.

One JSON value per line in both directions. Requests run concurrently on the other side, so
answers are matched by id, in any order. Built on `asyncio.Protocol` and not on streams: an
answer wakes its caller straight from the socket, and reading can be paused without a read-ahead
buffer, so that what is not yet processed waits on Signal's server and not in this process.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import structlog

from bot.errors import SignalPassedOver, SignalTimeout, SignalUnavailable
from bot.messaging.sentinels import Sentinels

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
READ_BYTES: Final = 256 * 1024
CONNECT_SECONDS: Final = 10.0

LOOK_SECONDS: Final = 1.0
"""Between two looks for requests that the other side has passed over."""

Address = str | tuple[str, int]
"""Path of a Unix socket, or host and port."""

Notify = Callable[[object, object], None]
"""Takes method and params of a notification."""

Garbage = Callable[[], None]
"""Told about each line that is no JSON-RPC."""

log = structlog.get_logger()


class JsonRpcError(Exception):
    """The other side answered with an error.

    Its words are left out of the text on purpose: they may name a person.

    Args:
        code: of the JSON-RPC error.
        data: what came with it.
        message: what the other side said; for reading a meaning from, never for showing.
    """

    def __init__(self, code: int, data: object, message: str = "") -> None:
        super().__init__(f"The request was answered with error {code}.")
        self.code = code
        self.data = data
        self.message = message


class JsonRpcConnection(asyncio.Protocol):
    """One connection, from `connect` until it is lost; there is no way back from that.

    Args:
        on_notification: called for each notification, in order.
        on_garbage: called for each line that is no JSON-RPC or longer than 32 MiB.
        look_seconds: between two looks for requests that the other side has passed over.
    """

    def __init__(
        self,
        on_notification: Notify,
        on_garbage: Garbage,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._on_notification = on_notification
        self._on_garbage = on_garbage
        self._look_seconds = look_seconds
        self._next_look: asyncio.TimerHandle | None = None
        self._lines = LineBuffer(MAX_LINE_BYTES)
        self._sentinels = Sentinels()
        self._waiting: dict[int | None, asyncio.Future[dict[str, Any]]] = {}
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._lost = asyncio.Event()
        self.reading_paused = False

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        address: Address,
        on_notification: Notify,
        on_garbage: Garbage,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> AsyncIterator[Self]:
        """Connect for the time of the `async with` block. asyncio itself sets TCP_NODELAY.

        Raises:
            SignalUnavailable: nobody listens there, or the connection took too long.
        """
        loop = asyncio.get_running_loop()
        connection = cls(on_notification, on_garbage, look_seconds=look_seconds)
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
            connection.close()
            await connection.lost()

    async def call(
        self, method: str, params: dict[str, Any], *, seconds: float, guarded: bool = False
    ) -> Any:
        """Make a request and return its result.

        Args:
            method: of the request.
            params: of the request.
            seconds: how long to wait for the answer.
            guarded: end the wait early when signal-cli turns out to have passed the request over.

        Raises:
            SignalUnavailable: the connection is lost or congested; the request did not go out.
            SignalPassedOver: the request was not taken, and later ones were answered.
            SignalTimeout: no answer within the bound, or the connection was lost before it.
            JsonRpcError: the answer is an error.
        """
        answered = asyncio.get_running_loop().create_future()
        request_id = None
        try:
            async with asyncio.timeout(seconds):
                await self._writable.wait()
                request_id = self._write(method, params, guarded=guarded)
                self._waiting[request_id] = answered
                answer = await answered
        except TimeoutError as error:
            if request_id is None:
                raise SignalUnavailable("signal-cli takes no requests.") from error
            raise SignalTimeout("signal-cli did not answer in time.") from error
        finally:
            self._waiting.pop(request_id, None)
        return _result(answer)

    def close(self) -> None:
        """Break the connection now."""
        if self._transport is not None:
            self._transport.abort()

    async def lost(self) -> None:
        """Wait until the connection is lost, however that happens."""
        await self._lost.wait()

    async def lost_within(self, seconds: float) -> bool:
        """Wait that long at most; return whether the connection is lost."""
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return False
        return True

    def pause_reading(self) -> None:
        """Read nothing more, answers included, until `resume_reading`."""
        if self._transport is not None and not self.reading_paused:
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None and self.reading_paused:
            self.reading_paused = False
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast("asyncio.Transport", transport)
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Hand out each line that is complete now."""
        for line in self._lines.feed(data):
            self._take(line)

    def pause_writing(self) -> None:
        """Hold back requests: the other side does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let requests out again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio's name
        """Fail the requests in flight: perhaps done, perhaps not."""
        if self._next_look is not None:
            self._next_look.cancel()
        if exc is not None and self._transport is not None:
            self._read_what_is_left(self._transport.get_extra_info("socket").fileno())
        self._lost.set()
        self._writable.set()
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(
                    SignalTimeout("The connection to signal-cli was lost before the answer.")
                )

    def _read_what_is_left(self, descriptor: int) -> None:
        """Take what came before the other side ended: asyncio drops it when a write fails.

        Nobody but this process has those messages any more.
        """
        with suppress(OSError):
            while data := os.read(descriptor, READ_BYTES):
                self.data_received(data)

    def _write(self, method: str, params: dict[str, Any], *, guarded: bool) -> int:
        """Write a request, perhaps with a sentinel, and return its number."""
        if self._transport is None or self._transport.is_closing():
            raise SignalUnavailable("The connection to signal-cli is lost.")
        number = self._sentinels.number()
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        self._transport.write(line + self._sentinels.sentinel() if guarded else line)
        if guarded and self._next_look is None:
            self._look_later()
        return number

    def _look_later(self) -> None:
        later = asyncio.get_running_loop().call_later
        # In a context of its own: what it logs is not about the chat of the present request.
        self._next_look = later(self._look_seconds, self._look, context=Context())

    def _look(self) -> None:
        """Fail what was passed over, as long as a sentinel is missing."""
        self._next_look = None
        if not self._sentinels.missing:
            return
        # While nothing is read or written, an answer that is missing proves nothing.
        if self._transport is not None and self._writable.is_set() and not self.reading_paused:
            if numbers := self._sentinels.passed_over():
                log.warning("signal.passed_over", count=len(numbers))
            for number in numbers:
                self._fail(number, SignalPassedOver("signal-cli did not take the request."))
            self._transport.write(self._sentinels.question())
        self._look_later()

    def _fail(self, number: int, error: SignalTimeout) -> None:
        answered = self._waiting.get(number)
        if answered is not None and not answered.done():
            answered.set_exception(error)

    def _take(self, line: bytes | None) -> None:
        value = _decode(line) if line is not None else None
        if not isinstance(value, dict):
            self._on_garbage()
        elif "method" in value:
            self._on_notification(value["method"], value.get("params"))
        else:
            self._answer(value)

    def _answer(self, answer: dict[str, Any]) -> None:
        request_id = answer.get("id")
        if not isinstance(request_id, int):
            return
        self._sentinels.answered(request_id)
        answered = self._waiting.get(request_id)
        # An answer that nobody waits for any more came after its bound: nothing to do.
        if answered is not None and not answered.done():
            answered.set_result(answer)


def parse_address(url: str) -> Address:
    """Read `unix:/path` or `tcp://host:port`; ValueError when it is neither."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return parts.path
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return parts.hostname, parts.port
    raise ValueError("Expected unix:/path/socket or tcp://host:port.")


class LineBuffer:
    """Cuts a stream of bytes into lines without ever holding more than one of them.

    Args:
        limit: bytes; a longer line is dropped and handed out as None.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that these bytes complete, without their newlines."""
        *ends, rest = data.split(b"\n")
        lines = [self._finish(end) for end in ends]
        self._add(rest)
        return lines

    def _finish(self, end: bytes) -> bytes | None:
        self._add(end)
        line = b"".join(self._parts) if self._size <= self._limit else None
        self._parts, self._size = [], 0
        return line

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts = []
        elif part:
            self._parts.append(part)


def _decode(line: bytes) -> object:
    """The JSON value of a line; None when it is not JSON, or is nested too deeply."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _result(answer: dict[str, Any]) -> Any:
    if "error" not in answer:
        return answer.get("result")
    error = answer["error"]
    if not isinstance(error, dict) or not isinstance(error.get("code"), int):
        raise JsonRpcError(INTERNAL_ERROR, None)
    raise JsonRpcError(error["code"], error.get("data"), str(error.get("message", "")))
