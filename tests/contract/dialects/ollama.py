"""Ollama's dialect, and a server that refuses what Ollama's refuses, in its words.

Sources: https://docs.ollama.com/api/chat, /api/tags, /api/show and /api/errors; the server's
routes.go and api/types.go, which say what cannot be decoded.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.contract.dialects.harness import (
    Arguments,
    Harness,
    Refused,
    StrictServer,
    demand,
    running,
)
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import Request, Step, in_pieces, raw_body, status, whole

NDJSON: Final = "application/x-ndjson"
CONTEXT_TOKENS: Final = 8_000
LONGEST_TOKENS: Final = 16_384
"""Longest prompt of the model according to `/api/show`."""
MEMBERS: Final = {"model", "messages", "tools", "stream", "think", "keep_alive", "options"}
OF_A_MESSAGE: Final = {"role", "content", "images", "tool_calls", "tool_name"}


def check(body: Mapping[str, Any], context_tokens: int) -> None:
    """Refuse requests that Ollama's server refuses or silently misreads."""
    demand(set(body) <= MEMBERS, "members that the API does not have")
    demand(body["messages"], "an empty conversation only loads the model")
    demand(re.fullmatch(r"\d+[smh]", body["keep_alive"]), "time: invalid duration")
    demand(body["options"] == {"num_ctx": context_tokens}, "a prompt beyond num_ctx is cut")
    for tool in body.get("tools", ()):
        demand(tool["type"] == "function", "json: cannot unmarshal into Go struct field Tool")
        demand(tool["function"]["parameters"]["type"] == "object", "json: cannot unmarshal")
    for message in body["messages"]:
        check_message(message)


def check_message(message: Mapping[str, Any]) -> None:
    demand(set(message) <= OF_A_MESSAGE, "members that the API does not have")
    demand(message["role"] in {"system", "user", "assistant", "tool"}, "invalid role")
    demand(isinstance(message["content"], str), "json: cannot unmarshal into Message.content")
    demand(message["role"] != "tool" or message["tool_name"], "a result without its tool")
    demand(message["role"] == "user" or "images" not in message, "templates show no images here")
    for call in message.get("tool_calls", ()):
        demand(isinstance(call["function"]["arguments"], dict), "json: cannot unmarshal arguments")
    for image in message.get("images", ()):
        try:
            base64.b64decode(image, validate=True)
        except binascii.Error:
            raise Refused("illegal base64 data at input byte 0") from None


@dataclass
class StrictOllama(StrictServer):
    """Refuses invalid conversations.

    Attributes:
        capabilities: of its model.
        context_tokens: expected size of the prompt in requests.
    """

    capabilities: list[str] = field(default_factory=lambda: ["completion", "tools", "thinking"])

    context_tokens: int = CONTEXT_TOKENS

    def is_question(self, request: Request) -> bool:
        return request.path == "/api/chat"

    def step_for(self, request: Request) -> Step:
        match request.method, request.path:
            case "GET", "/api/tags":
                return whole({"models": [{"name": MODEL, "model": MODEL, "size": 1}]})
            case "POST", "/api/show" if request.body["model"] == MODEL:
                info = {"general.architecture": "llama", "llama.context_length": LONGEST_TOKENS}
                shown = {"capabilities": self.capabilities, "details": {}, "model_info": info}
                return whole(shown)
            case "POST", "/api/chat" | "/api/show" if request.body["model"] != MODEL:
                return error(404, f"model '{request.body['model']}' not found")
            case "POST", "/api/chat":
                return self._chat(request.body)
        return status(404, "404 page not found")

    def _chat(self, body: Mapping[str, Any]) -> Step:
        if "tools" in body and "tools" not in self.capabilities:
            return error(400, f"registry.ollama.ai/library/{MODEL} does not support tools")
        if body.get("think") and "thinking" not in self.capabilities:
            return error(400, f'"{MODEL}" does not support thinking')
        try:
            check(body, self.context_tokens)
        except Refused as refused:
            return error(400, str(refused))
        return self.handler


def error(code: int, words: str) -> Step:
    return status(code, {"error": words})


def server() -> AbstractAsyncContextManager[StrictOllama]:
    return running(StrictOllama())


def line(message: Mapping[str, object], **more: object) -> bytes:
    said = {"role": "assistant", "content": "", **message}
    body = {"model": MODEL, "created_at": "2026-11-01T00:00:00Z", "message": said, "done": False}
    return json.dumps({**body, **more}).encode() + b"\n"


def answer(*messages: Mapping[str, Any], done_reason: str = "stop") -> Step:
    """Answer in lines, or with one document if the request asks for it."""

    async def step(request: Request, writer: Any) -> None:
        end = {"done": True, "done_reason": done_reason, "prompt_eval_count": 11, "eval_count": 7}
        if request.body["stream"]:
            lines = [*map(line, messages), line({}, **end)]
            return await raw_body(*lines, content_type=NDJSON)(request, writer)
        calls = [call for message in messages for call in message.get("tool_calls", ())]
        words = "".join(str(message.get("content", "")) for message in messages)
        whole_message = {"content": words, **({"tool_calls": calls} if calls else {})}
        return await whole(json.loads(line(whole_message, **end)))(request, writer)

    return step


def pieces(words: str) -> list[dict[str, object]]:
    return [{"content": piece} for piece in in_pieces(words)]


def text(words: str) -> Step:
    return answer(*pieces(words))


def tool_calls(calls: tuple[tuple[str, Arguments], ...], words: str) -> Step:
    asked = [{"tool_calls": [{"function": {"name": n, "arguments": a}}]} for n, a in calls]
    return answer(*pieces(words), *asked)


REFUSALS: Final[Mapping[str, tuple[int, str]]] = {
    "overloaded": (503, "server busy, please try again. maximum pending requests exceeded"),
    "rate_limit": (429, "you've reached your hourly usage limit, please upgrade to continue"),
    "key": (401, "unauthorized"),
    "credit": (403, "this model requires a subscription, upgrade for access"),
    "model": (404, f'model "{MODEL}" not found, try pulling it first'),
    "too_long": (400, "the input length exceeds the context length"),
    "no_tools": (400, f"registry.ollama.ai/library/{MODEL} does not support tools"),
}


BEGUN: Final = line({"content": "Good"})

HARNESS = Harness(
    name="ollama",
    server=server,
    text=text,
    tool_calls=tool_calls,
    cut_off=lambda words: answer({"content": words}, done_reason="length"),
    thinking=lambda reasoning, words: answer({"thinking": reasoning}, {"content": words}),
    broken_stream=raw_body(BEGUN, content_type=NDJSON, cut=True),
    half_stream=raw_body(BEGUN, content_type=NDJSON),
    refusals={kind: error(*said) for kind, said in REFUSALS.items()},
    error_midway=raw_body(
        BEGUN, b'{"error":"llama runner process has terminated"}\n', content_type=NDJSON
    ),
    settings={"context_tokens": CONTEXT_TOKENS},
)
