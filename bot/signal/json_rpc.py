"""Client connection for newline-delimited JSON-RPC 2.0, as signal-cli's daemon speaks it.

One JSON value per line in both directions. Requests run concurrently on the other side, so answers
are matched by id, in any order. Built on `asyncio.Protocol`: an answer wakes its caller straight
from the socket, and the bot can pause reading without a read-ahead buffer, so that unread messages
wait on Signal's server.

signal-cli may fall silent for some seconds and then go on without the requests of that time. A late
answer alone does not show that: a send may honestly take a minute. So a guarded request takes a
sentinel along in the same write: a `version`, which signal-cli answers within milliseconds in any
case. If the sentinel is answered, signal-cli has taken the request too, and is only slow. If later
requests are answered and the sentinel is not, signal-cli passed both over.
"""

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final, Self, cast
from urllib.parse import urlsplit

import structlog

from bot.errors import SignalPassedOver, SignalTimeout, SignalUnavailable

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
READ_BYTES: Final = 256 * 1024
CONNECT_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 1.0
"""Between two looks for requests that were passed over."""
MAX_LOOKS: Final = 2
"""A request counts as passed over after so many looks in a row.

Answers to requests of the same moment come in any order, a few milliseconds apart."""

log = structlog.get_logger()


class JsonRpcError(Exception):
    """The answer is an error. Its text leaves out `message`, which may name a person.

    Args:
        data: came with the error.
        message: signal-cli's words, to read a meaning from, never to be shown.
    """

    def __init__(self, code: int, data: object, message: str = "") -> None:
        super().__init__(f"The request was answered with error {code}.")
        self.code = code
        self.data = data
        self.message = message


def _ignore(*_: object) -> None:
    """Ignore notifications and garbage on a connection that only asks."""


class JsonRpcConnection(asyncio.Protocol):
    """Single connection, from `connect` until it is lost.

    Args:
        on_notification: takes method and params of each notification, in order.
        on_garbage: called for each line that is too long or not JSON-RPC.

    Attributes:
        lost: set when the connection is lost.
        reading_paused: between `pause_reading` and `resume_reading`.
    """

    def __init__(
        self,
        on_notification: Callable[[object, object], None],
        on_garbage: Callable[[], None],
        look_seconds: float,
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
        self.lost = asyncio.Event()
        self.reading_paused = False

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        on_notification: Callable[[object, object], None] = _ignore,
        on_garbage: Callable[[], None] = _ignore,
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
        connection = cls(on_notification, on_garbage, look_seconds)
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
            await connection.lost.wait()

    async def call(
        self, method: str, params: dict[str, Any], *, seconds: float, guarded: bool = False
    ) -> Any:
        """Make a request and return its result.

        Args:
            guarded: end the wait early if signal-cli turns out to have passed the request over.

        Raises:
            SignalUnavailable: the connection is lost or congested; the request did not go out.
            SignalPassedOver: the request was not taken, and later ones were answered.
            SignalTimeout: no answer in time, or the connection was lost before it.
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

    def pause_reading(self) -> None:
        """Read nothing more, including answers, until `resume_reading`."""
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
        """Process each complete line."""
        for line in self._lines.feed(data):
            self._take(line)

    def pause_writing(self) -> None:
        """Hold back requests: the other side does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Release held requests."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests in flight: perhaps done, perhaps not."""
        if self._next_look is not None:
            self._next_look.cancel()
        if exc is not None and self._transport is not None:
            # asyncio drops unread lines if a write fails; only this process has those messages.
            descriptor = self._transport.get_extra_info("socket").fileno()
            with suppress(OSError):
                while data := os.read(descriptor, READ_BYTES):
                    self.data_received(data)
        self.lost.set()
        self._writable.set()
        for number in [*self._waiting]:
            lost = SignalTimeout("The connection to signal-cli was lost before the answer.")
            self._finish(number, lost)

    def _write(self, method: str, params: dict[str, Any], *, guarded: bool) -> int:
        """Write a request, perhaps with a sentinel, and return its id."""
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
        # A context of its own: its log lines are not about the chat of the present request.
        self._next_look = later(self._look_seconds, self._look, context=Context())

    def _look(self) -> None:
        """Fail the requests that were passed over, and look again while a sentinel is missing."""
        self._next_look = None
        if not self._sentinels.missing:
            return
        # While nothing is read or written, a missing answer proves nothing.
        if self._transport is not None and self._writable.is_set() and not self.reading_paused:
            if numbers := self._sentinels.passed_over():
                log.warning("signal.passed_over", count=len(numbers))
            for number in numbers:
                self._finish(number, SignalPassedOver("signal-cli did not take the request."))
            # A bot that asks nothing else must hear that the silence ended.
            self._transport.write(self._sentinels.question())
        self._look_later()

    def _finish(self, number: int | None, outcome: dict[str, Any] | SignalTimeout) -> None:
        answered = self._waiting.get(number)
        if answered is None or answered.done():
            return  # the outcome came too late
        if isinstance(outcome, SignalTimeout):
            answered.set_exception(outcome)
        else:
            answered.set_result(outcome)

    def _take(self, line: bytes | None) -> None:
        try:
            value = json.loads(line or b"")
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._on_garbage()
        elif "method" in value:
            self._on_notification(value["method"], value.get("params"))
        elif isinstance(number := value.get("id"), int):
            self._sentinels.answered(number)
            self._finish(number, value)


class Sentinels:
    """Ids of all requests of a connection, and the sentinels among them."""

    def __init__(self) -> None:
        self._last = 0
        self._last_answered = 0
        self._missing: dict[int, int] = {}

    @property
    def missing(self) -> bool:
        """Whether a sentinel has no answer yet."""
        return bool(self._missing)

    def number(self) -> int:
        """Return the id of the next request."""
        self._last += 1
        return self._last

    def sentinel(self) -> bytes:
        """Return the sentinel of the request with the last id, to be written right after it."""
        question = self.question()
        self._missing[self._last] = 0
        return question

    def question(self) -> bytes:
        """Return a request whose answer shows that the other side answers again."""
        return b'{"jsonrpc":"2.0","id":%d,"method":"version","params":{}}\n' % self.number()

    def answered(self, number: int) -> None:
        """Note an answer to any request; an unknown id is ignored."""
        self._missing.pop(number, None)
        if number <= self._last:
            self._last_answered = max(self._last_answered, number)

    def passed_over(self) -> list[int]:
        """Look once, and return the ids of the requests that turn out to be passed over."""
        found = []
        for number in itertools.takewhile(self._last_answered.__gt__, [*self._missing]):
            self._missing[number] += 1
            if self._missing[number] >= MAX_LOOKS:
                del self._missing[number]
                found.append(number - 1)
        return found


def parse_address(url: str) -> str | tuple[str, int]:
    """Read `unix:/path` or `tcp://host:port`; raise ValueError for other forms."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return parts.path
    if parts.scheme == "tcp" and parts.hostname and parts.port:
        return parts.hostname, parts.port
    raise ValueError("Expected unix:/path/socket or tcp://host:port.")


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
