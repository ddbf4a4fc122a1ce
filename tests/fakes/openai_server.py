"""An OpenAI-compatible endpoint on loopback: real HTTP/1.1, scripted answers.

    async with openai_server(script(status(429), text("hello"))) as server:
        ...  # server.base_url, server.requests, server.handler = ..., await server.stop()

Without a script, and after its end, the last user's text is echoed: `answer to: <text>`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.fakes import scripted_http
from tests.fakes.scripted_http import (
    EVENT_STREAM,
    JSON,
    Body,
    Cut,
    Request,
    ScriptedServer,
    Step,
    cut,
    form_fields,
    held_after,
    raw,
    raw_body,
    status,
    whole,
)

__all__ = [
    "EVENT_STREAM",
    "JSON",
    "Body",
    "Cut",
    "Request",
    "Step",
    "cut",
    "form_fields",
    "raw",
    "raw_body",
    "status",
    "whole",
]

MODEL: Final = "test-model"
COMPLETIONS: Final = "/v1/chat/completions"


def streams(request: Request) -> bool:
    """Whether the answer is wanted in pieces."""
    return bool(request.body.get("stream"))


def wants_usage(request: Request) -> bool:
    """Whether a stream shall end with the token counts."""
    return bool((request.body.get("stream_options") or {}).get("include_usage"))


# Steps ------------------------------------------------------------------------------------------


async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with the last user's text."""
    messages = request.body.get("messages", ())
    said = [words_of(m["content"]) for m in messages if m["role"] == "user"]
    await text(f"answer to: {said[-1] if said else ''}")(request, writer)


def script(*steps: Step) -> Step:
    """Play the steps in turn, one a request, then echo."""
    return scripted_http.script(*steps, then=echo)


def text(words: str, *, finish_reason: str = "stop") -> Step:
    """Answer in words: streamed word by word, or whole, as the request asks."""
    pieces = [word + " " for word in words.split(" ")]
    pieces[-1] = pieces[-1][:-1]
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces)]
    return _answer({"content": words}, deltas, finish_reason)


def tool_calls(*calls: tuple[str, str | Mapping[str, object]], content: str | None = None) -> Step:
    """Ask for calls, each a name and its arguments (text, or an object that is dumped)."""
    entries = [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
            },
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    deltas: list[Body] = [{"role": "assistant", "content": content}]
    for entry in entries:
        deltas.extend({"tool_calls": [piece]} for piece in _in_pieces(entry))
    return _answer({"content": content, "tool_calls": entries}, deltas, "tool_calls")


def sse(*events: object, done: bool = True, cut: bool = False) -> Step:
    """Stream these events: text is sent as it is, anything else as JSON.

    Args:
        events: one `data:` line each.
        done: end with `[DONE]`.
        cut: break the connection after the last event.
    """
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    if done:
        lines.append("[DONE]")
    payload = "".join(f"data: {line}\n\n" for line in lines).encode()
    return raw_body(payload, content_type=EVENT_STREAM, cut=cut)


def held(event: asyncio.Event, step: Step = echo) -> Step:
    """Answer nothing until the event is set, then let the step answer."""
    return scripted_http.held(event, step)


def held_midway(event: asyncio.Event, *events: object) -> Step:
    """Stream these events, then nothing more until the event is set; then cut."""
    return held_after(event, sse(*events, done=False, cut=True))


def models(*ids: str, **more: object) -> Step:
    """Answer GET /models; every model has the fields in `more`."""
    data = [{"id": i, "object": "model", **more} for i in ids]
    return whole({"object": "list", "data": data})


def transcript(words: str) -> Step:
    """Answer POST /audio/transcriptions."""
    return whole({"text": words})


def speech(sound: bytes) -> Step:
    """Answer POST /audio/speech."""
    return raw_body(sound, content_type="application/octet-stream")


def refusing_images(step: Step = echo, *, code: int = 400) -> Step:
    """Refuse a request that shows an image, as endpoints of models without vision do."""

    async def look(request: Request, writer: asyncio.StreamWriter) -> None:
        said = {"error": {"message": "image_url is only supported by certain models"}}
        refuse = status(code, said) if images_in(request.body) else step
        await refuse(request, writer)

    return look


def reading(context_tokens: int, step: Step = echo) -> Step:
    """Refuse longer prompts, as llama.cpp's server does; a token has three bytes."""

    async def look(request: Request, writer: asyncio.StreamWriter) -> None:
        tokens = prompt_bytes(request.body) // 3
        if tokens < context_tokens:
            await step(request, writer)
            return
        error = {
            "code": 400,
            "message": f"request ({tokens} tokens) exceeds the available context size"
            f" ({context_tokens} tokens), try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": tokens,
            "n_ctx": context_tokens,
        }
        await status(400, {"error": error})(request, writer)

    return look


def prompt_bytes(body: Body) -> int:
    """Return the size of a request's messages and tools in bytes."""
    prompt = {key: body[key] for key in ("messages", "tools") if key in body}
    return len(json.dumps(prompt, ensure_ascii=False, separators=(",", ":")).encode())


def images_in(body: Body) -> list[str]:
    """Return the addresses of the images that a request shows."""
    contents = (message["content"] for message in body.get("messages", ()))
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def words_of(content: object) -> str:
    """Return the text in the content of a message."""
    if not isinstance(content, list):
        return str(content)
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def chunk(delta: object, *, finish_reason: str | None = None, **more: object) -> Body:
    """Encode an event of a stream as OpenAI does."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return {**head, "choices": [choice], **more}


# The server -------------------------------------------------------------------------------------


@dataclass
class OpenAiServer(ScriptedServer):
    """The running endpoint; its handlers may be swapped at any time."""

    handler: Step = echo
    models_handler: Step = field(default_factory=lambda: models(MODEL))
    props_handler: Step = field(default_factory=lambda: status(404))
    signature_handler: Step = field(default_factory=lambda: status(404))
    transcription_handler: Step = field(default_factory=lambda: status(404))
    speech_handler: Step = field(default_factory=lambda: status(404))

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def is_question(self, request: Request) -> bool:
        """Whether a request is one for a chat completion."""
        return request.path == COMPLETIONS

    def step_for(self, request: Request) -> Step:
        """Return the step that answers a request."""
        steps = {
            ("POST", COMPLETIONS): self.handler,
            ("POST", "/v1/audio/transcriptions"): self.transcription_handler,
            ("POST", "/v1/audio/speech"): self.speech_handler,
            ("GET", "/v1/models"): self.models_handler,
            ("GET", "/props"): self.props_handler,
        }
        if request.path.startswith("/v1/signature/"):
            return self.signature_handler
        unknown = status(404, {"error": {"message": "no such address"}})
        return steps.get((request.method, request.path), unknown)


@contextlib.asynccontextmanager
async def openai_server(handler: Step = echo) -> AsyncIterator[OpenAiServer]:
    """Run the endpoint on a free loopback port."""
    server = OpenAiServer(handler=handler)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _answer(message: Body, deltas: Sequence[Body], finish_reason: str) -> Step:
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    choice = {"index": 0, "message": {"role": "assistant", **message}}
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{**choice, "finish_reason": finish_reason}],
        "usage": usage,
    }
    events = [*map(chunk, deltas), chunk({}, finish_reason=finish_reason)]
    count = {**chunk({}), "choices": [], "usage": usage}

    async def step(request: Request, writer: asyncio.StreamWriter) -> None:
        if not streams(request):
            await whole(completion)(request, writer)
        elif wants_usage(request):
            await sse(*events, count)(request, writer)
        else:
            await sse(*events)(request, writer)

    return step


def _in_pieces(call: Body) -> list[Body]:
    arguments = call["function"]["arguments"]
    middle = len(arguments) // 2
    first = {**call, "function": {**call["function"], "arguments": ""}}
    rest = [
        {"index": call["index"], "function": {"arguments": piece}}
        for piece in (arguments[:middle], arguments[middle:])
    ]
    return [first, *rest]
