"""Answers of Anthropic's Messages API, as steps of a scripted server.

Reference: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.fakes.scripted_http import Step, in_pieces, raw_body, status

MODEL: Final = "test-model"
Event = dict[str, Any]

USAGE: Final = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 2,
    "cache_read_input_tokens": 4,
    "output_tokens": 1,
}


def sse(*events: Event, cut: bool = False) -> Step:
    """Stream events, each with its type as its name."""
    payload = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
    return raw_body(*payload, content_type="text/event-stream; charset=utf-8", cut=cut)


def began() -> list[Event]:
    message: Event = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": MODEL,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }
    return [{"type": "message_start", "message": message}, {"type": "ping"}]


def ended(stop_reason: str) -> list[Event]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]


def streamed(index: int, block: Event) -> list[Event]:
    """Return the events of one whole block, in several pieces."""
    begin, deltas = _pieces(block)
    return [
        {"type": "content_block_start", "index": index, "content_block": begin},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _pieces(block: Event) -> tuple[Event, list[Event]]:
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in in_pieces(block["text"])]
            return {"type": "text", "text": ""}, deltas
        case "tool_use":
            said = json.dumps(block["input"]) if block["input"] else ""
            pieces = ["", *in_pieces(said)]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return {**block, "input": {}}, deltas
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": piece}
                for piece in in_pieces(block["thinking"])
            ]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
    return block, []


def answer(*blocks: Event, stop_reason: str = "end_turn") -> Step:
    """Answer with these blocks."""
    events = [e for index, block in enumerate(blocks) for e in streamed(index, block)]
    return sse(*began(), *events, *ended(stop_reason))


def text(words: str) -> Event:
    return {"type": "text", "text": words}


def tool_uses(calls: Sequence[tuple[str, Mapping[str, object]]]) -> list[Event]:
    return [
        {"type": "tool_use", "id": f"toolu_01{number}", "name": name, "input": dict(arguments)}
        for number, (name, arguments) in enumerate(calls)
    ]


def error(code: int, type_: str, message: str) -> Step:
    """Refuse, as the API words it."""
    body = {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_011"}
    return status(code, body)
