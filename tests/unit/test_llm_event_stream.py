"""Amazon's event stream: whole messages are parsed, damaged ones end the answer."""

import json
import zlib
from typing import Any, Final

import pytest

from bot.llm.bedrock import MAX_MESSAGE_BYTES, EventStream
from bot.llm.errors import LlmBroken
from tests.fakes import bedrock_server as fake

END: Final = bytes.fromhex(
    "000000590000003076f8427f0d3a6d6573736167652d747970650700056576656e740b3a6576656e"
    "742d7479706507000b6d65737361676553746f707b2273746f70526561736f6e223a22656e645f74"
    "75726e227def4f02c7"
)
"""An event as AWS's own library reads it."""


def fed(data: bytes, size: int = 1) -> list[Any]:
    framing = EventStream()
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    found = [json.loads(one) for piece in pieces for one in framing.feed(piece)]
    assert not framing.end()
    assert framing.size == len(data)
    return found


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_separated_wherever_their_bytes_are_cut(size: int) -> None:
    assert fed(END * 3, size) == [{"messageStop": {"stopReason": "end_turn"}}] * 3


@pytest.mark.parametrize("at", range(len(END)))
def test_a_damaged_byte_is_noticed(at: int) -> None:
    damaged = bytes([*END[:at], END[at] ^ 0x10, *END[at + 1 :]])

    with pytest.raises(LlmBroken):
        fed(damaged + END)


@pytest.mark.parametrize(
    "headers",
    [b"\x01x\x0a", b"\x01x", b"\xff", b"\x01x\x07\xff\xff", b"\x01\xff\x07\x00\x00", b"\x01x\x07"],
)
def test_headers_that_make_no_sense_are_no_event(headers: bytes) -> None:
    with pytest.raises(LlmBroken):
        fed(fake.message({}, b"{}", extra_headers=headers))


def test_a_message_that_is_too_long_is_refused_before_it_has_come() -> None:
    whole = fake.message({}, b"x" * MAX_MESSAGE_BYTES)

    with pytest.raises(LlmBroken, match="longer"):
        fed(whole[:12])


def test_a_message_that_is_shorter_than_its_headers_is_no_message() -> None:
    prelude = (20).to_bytes(4, "big") * 2

    with pytest.raises(LlmBroken):
        fed(prelude + zlib.crc32(prelude).to_bytes(4, "big") + b"x" * 8)
