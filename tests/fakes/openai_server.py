"""A model's endpoint on loopback: real HTTP/1.1, scripted answers.

    async with openai_server(script(status(429), text("hello"))) as server:
        ...  # server.base_url, server.requests, server.handler = ..., await server.stop()

A step takes one request and writes one answer. Without a script, and after its end, the last
user's text is echoed: `answer to: <text>`.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final

from tests.fakes.accepting import close_listener

MODEL: Final = "test-model"
JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
COMPLETIONS: Final = "/v1/chat/completions"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in; header names are lower case, `raw` is the body's bytes."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Body
    raw: bytes = b""

    @property
    def streams(self) -> bool:
        """Whether the answer is wanted in pieces."""
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether a stream shall end with the token counts."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))


Step = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class Cut(Exception):
    """Raised by a step: the connection ends here, without a proper end of the answer."""


# Steps ------------------------------------------------------------------------------------------


async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with the last user's text."""
    messages = request.body.get("messages", ())
    said = [words_of(m["content"]) for m in messages if m["role"] == "user"]
    await text(f"answer to: {said[-1] if said else ''}")(request, writer)


def script(*steps: Step) -> Step:
    """Play the steps in turn, one a request, then echo."""
    left = list(steps)

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if left else echo)(request, writer)

    return play


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


def whole(body: object) -> Step:
    """Answer 200 with this JSON, whatever was asked."""
    return raw_body(json.dumps(body).encode(), content_type=JSON)


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


def raw_body(*pieces: bytes, content_type: str, cut: bool = False) -> Step:
    """Send a chunked body, one HTTP chunk a piece; cut: without its proper end."""

    async def step(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(_head(200, {"content-type": content_type, "transfer-encoding": "chunked"}))
        for piece in pieces:
            writer.write(_chunk(piece))
            await writer.drain()
        if cut:
            raise Cut
        writer.write(_chunk(b""))

    return step


def raw(*pieces: bytes) -> Step:
    """Send these bytes as they are, status line included, then close."""

    async def step(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.writelines(pieces)
        raise Cut

    return step


def status(code: int, body: object = "", headers: Mapping[str, str] | None = None) -> Step:
    """Answer with an HTTP status; the body is text, or an object that is dumped."""
    payload = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    async def step(_: Request, writer: asyncio.StreamWriter) -> None:
        length = {"content-type": JSON, "content-length": str(len(payload))}
        writer.write(_head(code, {**length, **(headers or {})}) + payload)

    return step


async def cut(_: Request, __: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""
    raise Cut


def held(event: asyncio.Event, step: Step = echo) -> Step:
    """Answer nothing until the event is set, then let the step answer."""

    async def wait(request: Request, writer: asyncio.StreamWriter) -> None:
        await event.wait()
        await step(request, writer)

    return wait


def held_midway(event: asyncio.Event, *events: object) -> Step:
    """Stream these events, then nothing more until the event is set; then cut."""

    async def wait(request: Request, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Cut):
            await sse(*events, done=False, cut=True)(request, writer)
        await event.wait()
        raise Cut

    return wait


def models(*ids: str, **more: object) -> Step:
    """Answer GET /models; `more` is said of each."""
    data = [{"id": i, "object": "model", **more} for i in ids]
    return whole({"object": "list", "data": data})


def transcript(words: str) -> Step:
    """Answer POST /audio/transcriptions."""
    return whole({"text": words})


def refusing_images(step: Step = echo, *, code: int = 400) -> Step:
    """Refuse a request that shows an image, as endpoints of models without eyes do."""

    async def look(request: Request, writer: asyncio.StreamWriter) -> None:
        said = {"error": {"message": "image_url is only supported by certain models"}}
        refuse = status(code, said) if images_in(request.body) else step
        await refuse(request, writer)

    return look


def images_in(body: Body) -> list[str]:
    """Return the addresses of the images that a request shows."""
    contents = (message["content"] for message in body.get("messages", ()))
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def words_of(content: object) -> str:
    """Return what a message's content says in words."""
    if not isinstance(content, list):
        return str(content)
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def form_fields(request: Request) -> dict[str, bytes]:
    """Return the fields of a multipart form by their names, and a file's name as `file name`."""
    kind = request.headers["content-type"]
    form = BytesParser(policy=HTTP).parsebytes(
        f"content-type: {kind}\r\n\r\n".encode() + request.raw
    )
    fields: dict[str, bytes] = {}
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        assert isinstance(name, str)
        assert isinstance(payload, bytes)
        fields[name] = payload
        if file_name := part.get_filename():
            fields[f"{name} name"] = file_name.encode()
    return fields


def chunk(delta: object, *, finish_reason: str | None = None, **more: object) -> Body:
    """One event of a stream, as OpenAI spells it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return {**head, "choices": [choice], **more}


# The server -------------------------------------------------------------------------------------


@dataclass
class OpenAiServer:
    """The running endpoint; its handlers may be swapped at any time.

    Attributes:
        received: every request so far, headers included.
        requests: the bodies of the chat completion requests among them.
        connections: how many were opened.
        tls: what it listens with; None: plain http.
    """

    handler: Step = echo
    models_handler: Step = field(default_factory=lambda: models(MODEL))
    signature_handler: Step = field(default_factory=lambda: status(404))
    transcription_handler: Step = field(default_factory=lambda: status(404))
    received: list[Request] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def base_url(self) -> str:
        """What `LLM__BASE_URL` is set to."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many chat completion requests have come in."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def start(self) -> None:
        """Listen; after a stop, on the same port."""
        self._server = await asyncio.start_server(
            self._converse, "127.0.0.1", self.port, backlog=2048, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and cut those that are open."""
        if self._server is not None:
            await close_listener(self._server)
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                await self._remember(request)
                await self._step_for(request)(request, writer)
                await writer.drain()
        except (Cut, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _remember(self, request: Request) -> None:
        self.received.append(request)
        if request.path == COMPLETIONS:
            self.requests.append(request.body)
        async with self._arrived:
            self._arrived.notify_all()

    def _step_for(self, request: Request) -> Step:
        match request.method, request.path:
            case "POST", "/v1/audio/transcriptions":
                return self.transcription_handler
            case "POST", path if path == COMPLETIONS:
                return self.handler
            case "GET", "/v1/models":
                return self.models_handler
            case "GET", path if path.startswith("/v1/signature/"):
                return self.signature_handler
            case _:
                return status(404, {"error": {"message": "no such address"}})


@contextlib.asynccontextmanager
async def openai_server(handler: Step = echo) -> AsyncIterator[OpenAiServer]:
    """Run the endpoint on a free loopback port."""
    server = OpenAiServer(handler)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


# The wire ---------------------------------------------------------------------------------------


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    length = int(headers.get("content-length", "0"))
    raw = await reader.readexactly(length)
    holds_json = raw and headers.get("content-type") == JSON
    return Request(method, path, headers, json.loads(raw) if holds_json else {}, raw)


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
        if not request.streams:
            await whole(completion)(request, writer)
        elif request.wants_usage:
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


def _head(code: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)
