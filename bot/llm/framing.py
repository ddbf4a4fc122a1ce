"""How the events of an answer are told apart in its bytes.

Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from collections.abc import Sequence
from typing import Final

from bot.llm.errors import LlmBroken

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_STREAM_BYTES: Final = 32 * 1024 * 1024
MAX_DOCUMENT_BYTES: Final = 4 * 1024 * 1024

TOO_LONG: Final = "The endpoint's answer is longer than this program reads."

Event = bytes | bytearray


class Framing:
    """Cuts bytes into events; by itself, it takes all bytes as one document."""

    max_bytes = MAX_DOCUMENT_BYTES

    def __init__(self) -> None:
        self.rest = bytearray()
        self.size = 0

    def feed(self, data: bytes) -> Sequence[Event]:
        """Return the events that the next bytes complete; LlmBroken beyond the bounds."""
        self.size += len(data)
        if self.size > self.max_bytes:
            raise LlmBroken(TOO_LONG)
        self.rest += data
        return self.events(data)

    def events(self, data: bytes) -> Sequence[Event]:
        """Take whole events off `rest`, which ends with the new data."""
        del data
        return ()

    def end(self) -> Sequence[Event]:
        """Return the last event, if the end of the bytes completes it."""
        return [self.rest]


class Lines(Framing):
    """Cuts bytes into lines, as in newline-delimited JSON."""

    max_bytes = MAX_STREAM_BYTES

    def events(self, data: bytes) -> Sequence[Event]:
        """Return the lines that are whole now."""
        return [line for line in self.lines(data) if line]

    def lines(self, data: bytes) -> list[bytearray]:
        """Return the lines that are whole now, empty ones too."""
        lines: list[bytearray] = []
        if b"\n" in data:
            *lines, self.rest = self.rest.split(b"\n")
        if len(self.rest) > MAX_LINE_BYTES:
            raise LlmBroken(TOO_LONG)
        return [line.removesuffix(b"\r") for line in lines]

    def end(self) -> Sequence[Event]:
        """Return a last line without an end."""
        return self.feed(b"\n")


class ServerSentEvents(Lines):
    """The data of server-sent events, without their names and ids."""

    def __init__(self) -> None:
        super().__init__()
        self._data: list[Event] = []
        self._data_bytes = 0

    def events(self, data: bytes) -> Sequence[Event]:
        """Return the data of the events that are whole now; LlmBroken for a huge event."""
        events: list[Event] = []
        for line in self.lines(data):
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
                self._data_bytes += len(line)
                if self._data_bytes > MAX_LINE_BYTES:  # to parse more would block the event loop
                    raise LlmBroken(TOO_LONG)
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._data_bytes = 0
        return events

    def end(self) -> Sequence[Event]:
        """Return an event without an empty line after it."""
        return self.feed(b"\n\n")
