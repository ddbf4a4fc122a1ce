"""The demo's offline assistant as an endpoint: `bot.demo.rules` behind the OpenAI protocol.

It answers on loopback as real endpoints do: `GET /v1/models` and `POST /v1/chat/completions`, whole
or streamed as server-sent events, with tool calls in pieces and counted tokens.
"""

import json
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

from pydantic import BaseModel, ValidationError

from bot.demo.rules import Reading, reply
from bot.observability.http_handlers import Request, Response, routes
from bot.observability.http_server import serve
from conversation_store.models import Message, Role, ToolCall

MODEL: Final = "offline-demo"
HOST: Final = "127.0.0.1"
CHARACTERS_PER_TOKEN: Final = 4

Json = dict[str, object]


@asynccontextmanager
async def serve_assistant() -> AsyncIterator[str]:
    """Run the offline assistant on a free port of loopback and yield its base URL."""
    handler = routes(
        {("GET", "/v1/models"): _list_models, ("POST", "/v1/chat/completions"): _complete}
    )
    async with serve(handler, host=HOST, port=0) as port:
        yield f"http://{HOST}:{port}/v1"


class _Function(BaseModel):
    name: str
    arguments: str = "{}"


class _ToolCall(BaseModel):
    id: str
    function: _Function


class _Tool(BaseModel):
    function: _Function


class _Part(BaseModel):
    text: str = ""


class _Message(BaseModel):
    role: Role
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None

    def parsed(self) -> Message:
        """Return the message as `bot.llm` has it."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        calls = [(call.id, call.function) for call in self.tool_calls or ()]
        return Message(
            role=self.role,
            content=content,
            tool_calls=tuple(ToolCall(id_, made.name, made.arguments) for id_, made in calls),
            tool_call_id=self.tool_call_id,
        )


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Question(BaseModel):
    """A chat completion request; other fields are ignored."""

    messages: list[_Message]
    tools: list[_Tool] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None

    def answered(self) -> Message:
        """Return the answer of the rules, as a model gives it."""
        offered = frozenset(tool.function.name for tool in self.tools or ())
        match reply([message.parsed() for message in self.messages], offered):
            case Reading(text):
                return Message(Role.ASSISTANT, text)
            case calls:
                made = tuple(
                    ToolCall(f"call_{uuid.uuid4().hex}", call.tool, json.dumps(call.arguments))
                    for call in calls
                )
                return Message(Role.ASSISTANT, None, made)

    @property
    def wants_usage(self) -> bool:
        """Whether the last chunk of a stream counts the tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


async def _list_models(_: Request) -> Response:
    model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "signal-tee-bot"}
    return _json(200, {"object": "list", "data": [model]})


async def _complete(request: Request) -> Response:
    try:
        question = _Question.model_validate_json(request.body)
    except ValidationError:
        message = "This is not a chat completion request."
        return _json(400, {"error": {"message": message, "type": "invalid_request_error"}})
    answer = question.answered()
    completion: Json = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": MODEL,
    }
    usage = _usage(request.body, answer)
    if not question.stream:
        return _json(200, completion | _whole(answer, usage))
    chunks = _chunks(answer, usage if question.wants_usage else None)
    return Response(200, _events(completion, chunks), "text/event-stream")


def _usage(prompt: bytes, answer: Message) -> Json:
    """Estimate tokens as four characters each."""
    said = (answer.content or "") + "".join(call.arguments for call in answer.tool_calls)
    prompt_tokens = len(prompt) // CHARACTERS_PER_TOKEN + 1
    completion_tokens = len(said) // CHARACTERS_PER_TOKEN + 1
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _whole(answer: Message, usage: Json) -> Json:
    message: Json = {"role": answer.role, "content": answer.content}
    if answer.tool_calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in answer.tool_calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer)}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


def _chunks(answer: Message, usage: Json | None) -> Iterator[Json]:
    """Yield the chunks of an answer: role, words, tool calls, finish reason, usage."""
    yield _chunk({"role": answer.role, "content": None})
    for word in re.findall(r"\s*\S+\s*", answer.content or ""):
        yield _chunk({"content": word})
    for index, call in enumerate(answer.tool_calls):
        yield _chunk({"tool_calls": [{"index": index, **_call(call, arguments="")}]})
        for piece in _halves(call.arguments):
            delta = {"index": index, "function": {"arguments": piece}}
            yield _chunk({"tool_calls": [delta]})
    yield _chunk({}, _finish_reason(answer))
    if usage is not None:
        yield {"object": "chat.completion.chunk", "choices": [], "usage": usage}


def _chunk(delta: Json, finish_reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def _call(call: ToolCall, arguments: str) -> Json:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def _finish_reason(answer: Message) -> str:
    return "tool_calls" if answer.tool_calls else "stop"


async def _events(completion: Json, chunks: Iterator[Json]) -> AsyncGenerator[bytes, None]:
    """Return server-sent events, the last one the protocol's `[DONE]`."""
    for chunk in chunks:
        yield b"data: %b\n\n" % json.dumps(completion | chunk).encode()
    yield b"data: [DONE]\n\n"


def _json(status: int, value: Json) -> Response:
    return Response(status, json.dumps(value).encode(), "application/json")
