"""How the events of an answer are told apart in its bytes.

Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from collections.abc import Sequence
from typing import Final, Protocol

from bot.llm.errors import LlmBroken

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_STREAM_BYTES: Final = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024

TOO_LONG: Final = "The endpoint's answer is longer than this program reads."

Event = bytes | bytearray


class Framing(Protocol):
    """Cuts bytes, which come cut anywhere, into events."""

    @property
    def size(self) -> int:
        """How many bytes have come."""
        ...

    def feed(self, data: bytes) -> Sequence[Event]:
        """Take the next bytes and return the events that they end; LlmBroken beyond the bounds."""
        ...

    def end(self) -> Sequence[Event]:
        """Return what the end of the bytes makes an event."""
        ...


class _LineBuffer:
    """Bytes of which lines are taken as soon as they are whole."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.size = 0

    def feed(self, data: bytes) -> list[bytearray]:
        """Return the lines that are whole now, empty ones too; LlmBroken beyond the bounds."""
        self.size += len(data)
        self._rest += data
        lines: list[bytearray] = []
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
        if self.size > MAX_STREAM_BYTES or len(self._rest) > MAX_LINE_BYTES:
            raise LlmBroken(TOO_LONG)
        return lines

    def take_rest(self) -> bytearray:
        """Return a last line that has no end."""
        rest, self._rest = self._rest, bytearray()
        return rest


class Lines:
    """One event a line, as newline-delimited JSON has it."""

    def __init__(self) -> None:
        self._lines = _LineBuffer()

    @property
    def size(self) -> int:
        """How many bytes have come."""
        return self._lines.size

    def feed(self, data: bytes) -> Sequence[Event]:
        """Return the lines that are whole now, without their ends."""
        return [line for raw in self._lines.feed(data) if (line := raw.removesuffix(b"\r"))]

    def end(self) -> Sequence[Event]:
        """Return a last line that has no end."""
        last = self._lines.take_rest()
        return [last] if last else ()


class ServerSentEvents:
    """The data of server-sent events; their names and ids are of no use here."""

    def __init__(self) -> None:
        self._lines = _LineBuffer()
        self._data: list[Event] = []

    @property
    def size(self) -> int:
        """How many bytes have come."""
        return self._lines.size

    def feed(self, data: bytes) -> Sequence[Event]:
        """Return the data of the events that are whole now."""
        events: list[Event] = []
        for raw in self._lines.feed(data):
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        return events

    def end(self) -> Sequence[Event]:
        """Return an event that no empty line follows."""
        return self.feed(b"\n\n")


class WholeDocument:
    """One event: all of it, at the end."""

    def __init__(self) -> None:
        self._pieces = bytearray()

    @property
    def size(self) -> int:
        """How many bytes have come."""
        return len(self._pieces)

    def feed(self, data: bytes) -> Sequence[Event]:
        """Keep the next bytes."""
        self._pieces += data
        if len(self._pieces) > MAX_DOCUMENT_BYTES:
            raise LlmBroken(TOO_LONG)
        return ()

    def end(self) -> Sequence[Event]:
        """Return the document."""
        return [bytes(self._pieces)]
