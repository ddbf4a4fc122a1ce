"""OpenAI's dialect, and a server that refuses conversations which OpenAI's refuses."""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from tests.contract.dialects.harness import Arguments, Harness, StrictServer, running
from tests.fakes import openai_server as fake
from tests.fakes.openai_server import chunk, sse, status
from tests.fakes.scripted_http import Request, Step

ROLES = ("system", "user", "assistant", "tool")


def problem_of_words(role: str, content: object) -> str | None:
    """Return the objection of a server to the content of a message without calls."""
    if content is None:
        return "expected a string, got null"
    if role == "assistant" and not str(content).strip():  # Mistral's servers
        return "Assistant message must have either content or tool_calls, but not none."
    return None


def problem_of(body: dict[str, Any]) -> str | None:
    """Return the objection of OpenAI's server to a request."""
    waiting: set[str] = set()
    before = ""
    for number, message in enumerate(body["messages"]):
        role, path = message["role"], f"messages[{number}]"
        has_images = isinstance(message["content"], list)
        # Servers of Mistral's models take no person's message right behind a result.
        is_misplaced = (before, role) == ("tool", "user") or (has_images and role != "user")
        if role not in ROLES or is_misplaced:
            return f"Unexpected role '{role}' after role '{before}' in {path}"
        before = role
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                return "messages with role 'tool' must be a response to a preceding message"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            return "tool_call_ids did not have response messages"
        for call in message.get("tool_calls", ()):
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                return f"{path}.tool_calls: arguments must be an object"
            waiting.add(call["id"])
        if not waiting and problem_of_words(role, message["content"]):
            return f"{path}.content: {problem_of_words(role, message['content'])}"
    return "tool_call_ids did not have response messages" if waiting else None


@dataclass
class StrictOpenAi(StrictServer):
    """Refuses invalid conversations."""

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def is_question(self, request: Request) -> bool:
        return request.path == fake.COMPLETIONS

    def step_for(self, request: Request) -> Step:
        if not self.is_question(request):
            return fake.models(fake.MODEL)
        if problem := problem_of(request.body):
            return status(400, {"error": {"message": problem, "type": "invalid_request_error"}})
        return self.handler


def server() -> AbstractAsyncContextManager[StrictOpenAi]:
    return running(StrictOpenAi())


def tool_calls(calls: tuple[tuple[str, Arguments], ...], words: str) -> Step:
    return fake.tool_calls(*calls, content=words)


def thinking(reasoning: str, words: str) -> Step:
    return sse(
        chunk({"role": "assistant", "reasoning_content": reasoning}),
        chunk({"content": words}),
        chunk({}, finish_reason="stop"),
    )


REFUSALS: dict[str, tuple[int, dict[str, str]]] = {
    "overloaded": (503, {"message": "The server is overloaded."}),
    "rate_limit": (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}),
    "key": (401, {"message": "Incorrect API key provided.", "code": "invalid_api_key"}),
    "credit": (429, {"message": "You exceeded your quota.", "code": "insufficient_quota"}),
    "model": (404, {"message": "The model `x` does not exist", "code": "model_not_found"}),
    "too_long": (
        400,
        {"message": "This model's maximum context length is 8192 tokens.", "code": "too_long"},
    ),
    "no_tools": (400, {"message": "tools is not supported with this model"}),
    "no_system_role": (400, {"message": "System role not supported"}),
    "no_images": (400, {"message": "image_url is only supported by certain models."}),
}


HALF_A_CALL = {"index": 0, "id": "call_1", "function": {"name": "clock", "arguments": '{"zo'}}

HARNESS = Harness(
    name="openai",
    server=server,
    text=fake.text,
    tool_calls=tool_calls,
    cut_off=lambda words: fake.text(words, finish_reason="length"),
    thinking=thinking,
    broken_stream=sse(chunk({"content": "Good"}), done=False, cut=True),
    half_stream=sse(chunk({"content": "Good"}), done=False),
    refusals={kind: status(code, {"error": said}) for kind, (code, said) in REFUSALS.items()},
    cut_call=sse(chunk({"tool_calls": [HALF_A_CALL]}), chunk({}, finish_reason="length")),
    error_midway=sse(
        chunk({"content": "Good"}), {"error": {"message": "overloaded", "code": 503}}, done=False
    ),
)
