"""Amazon's event stream encoding: binary messages of headers and a payload, each with checksums.

An event leaves as JSON in the shape that the API's reference has: `{"messageStop": {...}}`; an
exception as `{"exception": {"type": ..., "said": {...}}}`.
Source: https://smithy.io/2.0/aws/amazon-eventstream.html
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from bot.llm.errors import LlmBroken
from bot.llm.framing import MAX_LINE_BYTES, MAX_STREAM_BYTES, TOO_LONG, Event

MAX_MESSAGE_BYTES: Final = MAX_LINE_BYTES

_PRELUDE: Final = struct.Struct(">III")
"""Length of the message, length of its headers, and the checksum of both."""
_CHECKSUM: Final = struct.Struct(">I")
_TEXT: Final = 7
_LENGTHS: Final[Mapping[int, int]] = MappingProxyType(
    {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
)
"""Bytes of a header's value by its type; text (7) and bytes (6) say their own length."""


class EventStream:
    """Cuts bytes into messages. Implements `bot.llm.framing.Framing`."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.size = 0

    def feed(self, data: bytes) -> Sequence[Event]:
        """Return the events that are whole now; LlmBroken when they are damaged or too long."""
        self.size += len(data)
        if self.size > MAX_STREAM_BYTES:
            raise LlmBroken(TOO_LONG)
        self._rest += data
        events: list[Event] = []
        while length := _whole(self._rest):
            message = bytes(self._rest[:length])
            del self._rest[:length]
            events.append(_event(message))
        return events

    def end(self) -> Sequence[Event]:
        """Return nothing: a message that is not whole is none."""
        return ()


def _whole(data: bytearray) -> int:
    """Return the length of the message that the data begins with; 0 while it is not whole."""
    if len(data) < _PRELUDE.size:
        return 0
    length, headers_length, checksum = _PRELUDE.unpack_from(data)
    if zlib.crc32(data[:8]) != checksum:
        raise _damaged()
    if length > MAX_MESSAGE_BYTES:
        raise LlmBroken(TOO_LONG)
    if length < _PRELUDE.size + headers_length + _CHECKSUM.size:
        raise _damaged()
    return length if len(data) >= length else 0


def _event(message: bytes) -> Event:
    _, headers_length, _ = _PRELUDE.unpack_from(message)
    end = len(message) - _CHECKSUM.size
    if zlib.crc32(message[:end]) != _CHECKSUM.unpack_from(message, end)[0]:
        raise _damaged()
    begin = _PRELUDE.size + headers_length
    try:
        headers = _headers(message[_PRELUDE.size : begin])
    except (IndexError, KeyError, UnicodeDecodeError, struct.error):
        raise _damaged() from None
    payload = message[begin:end] or b"{}"
    match headers.get(":message-type"):
        case "exception":
            name = json.dumps(headers.get(":exception-type", "")).encode()
            return b'{"exception":{"type":%b,"said":%b}}' % (name, payload)
        case "error":
            failure = {"type": headers.get(":error-code", ""), "said": {}}
            return json.dumps({"exception": failure}).encode()
    name = json.dumps(headers.get(":event-type", "")).encode()
    return b"{%b:%b}" % (name, payload)


def _headers(data: bytes) -> Mapping[str, str]:
    """Return the headers whose values are text."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        value_at = at + 1 + data[at] + 1
        name, kind = data[at + 1 : value_at - 1], data[value_at - 1]
        if kind in _LENGTHS:
            at = value_at + _LENGTHS[kind]
            continue
        (length,) = struct.unpack_from(">H", data, value_at)
        at = value_at + 2 + length
        if kind == _TEXT:
            found[name.decode()] = data[value_at + 2 : at].decode()
    if at > len(data):
        raise IndexError("a value is longer than the headers")
    return found


def _damaged() -> LlmBroken:
    return LlmBroken("The endpoint's answer is damaged.")
