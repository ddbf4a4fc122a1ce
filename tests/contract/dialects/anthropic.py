"""Anthropic's dialect, and a server that refuses what Anthropic's refuses, in its words.

Sources: https://platform.claude.com/docs/en/api/messages and /docs/en/api/errors; the wording of
refusals as people report them.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from tests.contract.dialects.harness import (
    Arguments,
    Harness,
    Refused,
    StrictServer,
    demand,
    running,
)
from tests.declaration_rules import check_anthropic
from tests.fakes import anthropic_server as fake
from tests.fakes.anthropic_server import began, error, sse, streamed, text, tool_uses
from tests.fakes.scripted_http import Request, Step, whole

MEMBERS: Final = {
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "thinking"),
    *("temperature", "top_k", "top_p", "stop_sequences", "metadata", "service_tier"),
}
MAX_MARKS: Final = 4
IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
BLOCKS: Final[Mapping[str, tuple[set[str], set[str]]]] = {
    "text": ({"text"}, set()),
    "image": ({"source"}, set()),
    "tool_use": ({"id", "name", "input"}, set()),
    "tool_result": ({"tool_use_id"}, {"content", "is_error"}),
    "thinking": ({"thinking", "signature"}, set()),
    "redacted_thinking": ({"data"}, set()),
}
"""Required and optional members of each kind of block."""
ALLOWED: Final = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
}
SIGNATURE: Final = "EqQBCgIYAhIM1gbcDa9GJwZA2b3h"


def check(body: Mapping[str, Any]) -> None:
    """Raise the objection of Anthropic's server to a request, if any."""
    for unknown in set(body) - MEMBERS:
        raise Refused(f"{unknown}: Extra inputs are not permitted")
    for needed in ("model", "max_tokens", "messages"):
        demand(needed in body, f"{needed}: Field required")
    demand(body["max_tokens"] >= 1, "max_tokens: must be greater than or equal to 1")
    marks = json.dumps(body).count('"cache_control"')
    demand(marks <= MAX_MARKS, f"A maximum of 4 blocks with cache_control, found {marks}.")
    for block in body.get("system", ()):
        check_block("system", block, {"text"})
    names = check_tools(body)
    check_messages(body["messages"])
    if any(block["type"] == "tool_use" for m in body["messages"] for block in m["content"]):
        demand(names, "Requests which have `tool_use` blocks in `messages` must define tools")


def check_tools(body: Mapping[str, Any]) -> Sequence[str]:
    tools = body.get("tools", [])
    for tool in tools:
        check_mark("tools", tool)
        check_anthropic({key: value for key, value in tool.items() if key != "cache_control"})
    names = [tool["name"] for tool in tools]
    demand(len(set(names)) == len(names), "tools: Tool names must be unique.")
    if (choice := body.get("tool_choice")) is not None:
        demand(tools, "tool_choice may only be specified while providing tools.")
        demand(choice["type"] in {"auto", "any", "tool", "none"}, "tool_choice: Input tag")
    return names


def check_messages(messages: Sequence[Mapping[str, Any]]) -> None:
    demand(messages, "messages: at least one message is required")
    demand(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    demand(messages[-1]["role"] == "user", "The model does not support prefill.")
    seen: set[str] = set()
    waiting: list[str] = []
    before = ""
    for number, message in enumerate(messages):
        path, role = f"messages.{number}", message["role"]
        demand(set(message) == {"role", "content"}, f"{path}: Extra inputs are not permitted")
        demand(role in ALLOWED, f"{path}.role: Input should be 'user' or 'assistant'")
        demand(role != before, f"{path}: roles must alternate")
        before = role
        blocks = message["content"]
        demand(blocks, f"{path}: all messages must have non-empty content")
        for index, block in enumerate(blocks):
            check_block(f"{path}.content.{index}", block, ALLOWED[role])
        check_results(path, blocks, waiting)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for id_ in waiting:
            demand(id_ not in seen, f"{path}: `tool_use` ids must be unique")
            seen.add(id_)


def check_results(path: str, blocks: Sequence[Mapping[str, Any]], waiting: list[str]) -> None:
    answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
    demand(set(waiting) <= set(answered), f"{path}: `tool_use` without result")
    demand(set(answered) <= set(waiting), f"{path}: unexpected `tool_use_id`")
    demand(len(answered) == len(set(answered)), f"{path}: each tool_use must have a single result")
    first = [block["type"] for block in blocks[: len(answered)]]
    demand(set(first) <= {"tool_result"}, f"{path}: `tool_result` blocks must come first")


def check_block(path: str, block: Mapping[str, Any], allowed: set[str]) -> None:
    kind = block["type"]
    demand(kind in allowed, f"{path}: Input tag '{kind}' found using 'type' does not match")
    needed, possible = BLOCKS[kind]
    members = set(block) - {"type", "cache_control"}
    demand(needed <= members, f"{path}.{kind}: Field required")
    demand(members <= needed | possible, f"{path}.{kind}: Extra inputs are not permitted")
    check_mark(path, block)
    if "thinking" in kind:
        demand("cache_control" not in block, f"{path}: cache_control: Extra inputs")
        demand(block.get("signature", SIGNATURE) == SIGNATURE, f"{path}: Invalid `signature`")
    returned = block.get("content")
    demand(not block.get("is_error") or returned, f"{path}.tool_result: content cannot be empty")
    if isinstance(returned, list):
        for index, part in enumerate(returned):
            check_block(f"{path}.content.{index}", part, {"text", "image"})
        returned = None
    for text_ in (block.get("text"), returned):
        present = text_ is not None and (kind, text_) != ("tool_result", "")
        demand(not present or str(text_).strip(), "messages: text content blocks must be non-empty")
    for id_ in (block.get("id"), block.get("tool_use_id")):
        fits = id_ is None or re.fullmatch(r"[a-zA-Z0-9_-]+", id_)
        demand(fits, f"{path}.{kind}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    name = block.get("name", "x")
    fits = re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", name)
    demand(fits, f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{1, 128}$'")
    demand(isinstance(block.get("input", {}), dict), f"{path}: Input should be a valid dictionary")
    if kind == "image":
        source = block["source"]
        demand(set(source) == {"type", "media_type", "data"}, f"{path}.source: Extra inputs")
        demand(source["type"] == "base64", f"{path}.source: Input tag")
        demand(source["media_type"] in IMAGES, f"{path}.source.base64.media_type: Input should be")
        demand(base64.b64decode(source["data"], validate=True), "Could not process image")


def check_mark(path: str, holder: Mapping[str, Any]) -> None:
    mark = holder.get("cache_control", {"type": "ephemeral"})
    demand(mark == {"type": "ephemeral"}, f"{path}.cache_control: Input tag")


@dataclass
class StrictAnthropic(StrictServer):
    """Refuses invalid conversations."""

    def is_question(self, request: Request) -> bool:
        return request.path == "/v1/messages"

    def step_for(self, request: Request) -> Step:
        headers = request.headers
        if "x-api-key" not in headers or "authorization" in headers:
            return error(401, "authentication_error", "x-api-key header is required")
        if headers.get("anthropic-version") != "2023-06-01":
            return error(400, "invalid_request_error", "anthropic-version: header is required")
        if request.method == "GET":
            return about(request.path)
        if not self.is_question(request):
            return error(404, "not_found_error", "Not Found")
        try:
            check(request.body)
        except Refused as refused:
            return error(400, "invalid_request_error", str(refused))
        return self.handler


def about(path: str) -> Step:
    """Answer as `GET /v1/models` and `GET /v1/models/{id}`."""
    entry = {
        "type": "model",
        "id": fake.MODEL,
        "display_name": "Test Model",
        "created_at": "2026-01-01T00:00:00Z",
        "capabilities": {"image_input": {"supported": True}},
    }
    if path == f"/v1/models/{fake.MODEL}":
        return whole(entry)
    if path == "/v1/models?limit=1000":
        page = {"has_more": False, "first_id": fake.MODEL, "last_id": fake.MODEL}
        return whole({"data": [entry], **page})
    return error(404, "not_found_error", f"model: {path.rpartition('/')[2]}")


def server() -> AbstractAsyncContextManager[StrictAnthropic]:
    return running(StrictAnthropic())


def tool_calls(calls: tuple[tuple[str, Arguments], ...], words: str) -> Step:
    said = [text(words)] if words else []
    return fake.answer(*said, *tool_uses(calls), stop_reason="tool_use")


def thinking(reasoning: str, words: str) -> Step:
    thought = {"type": "thinking", "thinking": reasoning, "signature": SIGNATURE}
    return fake.answer(thought, text(words))


INVALID: Final = "invalid_request_error"
REFUSALS: Final[Mapping[str, tuple[int, str, str]]] = {
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "rate_limit": (
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 50,000 tokens per minute.",
    ),
    "key": (401, "authentication_error", "invalid x-api-key"),
    "credit": (
        400,
        INVALID,
        "Your credit balance is too low to access the Anthropic API. Please purchase credits.",
    ),
    "model": (404, "not_found_error", "model: claude-unknown"),
    "too_long": (400, INVALID, "prompt is too long: 208310 tokens > 200000 maximum"),
    "no_images": (400, INVALID, "'claude-2.1' does not support image input."),
}


OVERLOADED: Final = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Overloaded"},
}
BEGUN: Final = [*began(), *streamed(0, text("Good"))]

HALF_A_CALL: Final = [
    *began(),
    *streamed(0, {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"z": 1}})[:2],
    *fake.ended("max_tokens"),
]

HARNESS = Harness(
    name="anthropic",
    server=server,
    text=lambda words: fake.answer(text(words)),
    tool_calls=tool_calls,
    cut_off=lambda words: fake.answer(text(words), stop_reason="max_tokens"),
    thinking=thinking,
    broken_stream=sse(*BEGUN, cut=True),
    half_stream=sse(*BEGUN),
    refusals={kind: error(*said) for kind, said in REFUSALS.items()},
    cut_call=sse(*HALF_A_CALL),
    error_midway=sse(*BEGUN, OVERLOADED),
    settings={"api_key": "secret-key"},
)
