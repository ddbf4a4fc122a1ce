"""Answers of Bedrock's Converse API, as steps of a scripted server.

Reference: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html
and https://smithy.io/2.0/aws/amazon-eventstream.html
"""

import asyncio
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.fakes.scripted_http import Request, Step, in_pieces, raw_body, status, whole

EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
TEXT: Final = b"\x07"

Event = tuple[str, dict[str, Any]]
Block = dict[str, Any]

USAGE: Final = {
    "inputTokens": 5,
    "outputTokens": 7,
    "totalTokens": 18,
    "cacheReadInputTokens": 4,
    "cacheWriteInputTokens": 2,
}


def message(headers: Mapping[str, str], payload: bytes, *, extra_headers: bytes = b"") -> bytes:
    """Encode one message of an event stream."""
    encoded = extra_headers
    for name, value in headers.items():
        encoded += bytes([len(name)]) + name.encode() + TEXT
        encoded += len(value.encode()).to_bytes(2, "big") + value.encode()
    length = 12 + len(encoded) + len(payload) + 4
    prelude = length.to_bytes(4, "big") + len(encoded).to_bytes(4, "big")
    data = prelude + zlib.crc32(prelude).to_bytes(4, "big") + encoded + payload
    return data + zlib.crc32(data).to_bytes(4, "big")


def event(name: str, payload: dict[str, Any]) -> bytes:
    """Encode an event, padded as Bedrock does it against guesses from its length."""
    headers = {
        ":event-type": name,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    return message(headers, json.dumps({**payload, "p": "abcdefgh"}).encode())


def exception(type_: str, words: str) -> bytes:
    headers = {
        ":exception-type": type_,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return message(headers, json.dumps({"message": words}).encode())


def stream(*messages: bytes, cut: bool = False) -> Step:
    """Stream these messages in pieces that ignore the bounds of messages."""
    data = b"".join(messages)
    pieces = [data[start : start + 50] for start in range(0, len(data), 50)]
    return raw_body(*pieces, content_type=EVENT_STREAM, cut=cut)


def began() -> list[Event]:
    return [("messageStart", {"role": "assistant"})]


def ended(stop_reason: str) -> list[Event]:
    return [
        ("messageStop", {"stopReason": stop_reason}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 100}}),
    ]


def streamed(index: int, block: Block) -> list[Event]:
    """Return the events of one whole block, in several pieces."""
    begin, deltas = _pieces(block)
    at = {"contentBlockIndex": index}
    start = [("contentBlockStart", {"start": begin, **at})] if begin else []
    going_on = [("contentBlockDelta", {"delta": delta, **at}) for delta in deltas]
    return [*start, *going_on, ("contentBlockStop", at)]


def _pieces(block: Block) -> tuple[Block, list[Block]]:
    match block:
        case {"text": str(words)}:
            return {}, [{"text": piece} for piece in in_pieces(words)]
        case {"toolUse": call}:
            said = json.dumps(call["input"]) if call["input"] else ""
            begin = {"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}}
            return begin, [{"toolUse": {"input": piece}} for piece in ("", *in_pieces(said))]
        case {"reasoningContent": {"reasoningText": thought}}:
            pieces = [{"reasoningContent": {"text": piece}} for piece in in_pieces(thought["text"])]
            return {}, [*pieces, {"reasoningContent": {"signature": thought["signature"]}}]
    return {}, [block]


def answer(*blocks: Block, stop_reason: str = "end_turn") -> Step:
    """Answer with these blocks, streamed if that is asked for."""
    parts = [one for index, block in enumerate(blocks) for one in streamed(index, block)]
    as_stream = stream(*(event(*one) for one in (*began(), *parts, *ended(stop_reason))))
    document = whole(
        {
            "output": {"message": {"role": "assistant", "content": blocks}},
            "stopReason": stop_reason,
            "usage": USAGE,
            "metrics": {"latencyMs": 100},
        }
    )

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        wants_stream = request.path.endswith("/converse-stream")
        await (as_stream if wants_stream else document)(request, writer)

    return step


def text(words: str) -> Block:
    return {"text": words}


def tool_uses(calls: Sequence[tuple[str, Mapping[str, object]]]) -> list[Block]:
    return [
        {"toolUse": {"toolUseId": f"tooluse_{number}", "name": name, "input": dict(arguments)}}
        for number, (name, arguments) in enumerate(calls)
    ]


def error(code: int, type_: str, words: str) -> Step:
    """Refuse, as the API words it."""
    kind = f"{type_}:http://internal.amazon.com/coral/com.amazon.bedrock/"
    return status(code, {"message": words}, {"x-amzn-errortype": kind})
