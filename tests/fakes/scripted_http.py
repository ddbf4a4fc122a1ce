"""A scripted HTTP/1.1 server on loopback: each request is answered by a step.

    step = script(status(429), whole({"answer": 42}))

A step takes one request and writes one answer. The fakes of models' endpoints are made of this.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Final

from tests.fakes.accepting import close_listener

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """Request as it came in; header names are lower case, `raw` is the body's bytes."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Body
    raw: bytes = b""


Step = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


class Cut(Exception):
    """Raised by a step: the connection ends here, without a proper end of the answer."""


# Steps ------------------------------------------------------------------------------------------


def script(*steps: Step, then: Step) -> Step:
    """Play the steps in turn, one a request, then always the last one."""
    left = list(steps)

    async def play(request: Request, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if left else then)(request, writer)

    return play


def whole(body: object) -> Step:
    """Answer every request with 200 and this JSON."""
    return raw_body(json.dumps(body).encode(), content_type=JSON)


def events(*lines: str, cut: bool = False) -> Step:
    """Stream server-sent events with this data, one each.

    Args:
        lines: the data.
        cut: break the connection after the last event.
    """
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


def held(event: asyncio.Event, step: Step) -> Step:
    """Answer nothing until the event is set, then let the step answer."""

    async def wait(request: Request, writer: asyncio.StreamWriter) -> None:
        await event.wait()
        await step(request, writer)

    return wait


def held_after(event: asyncio.Event, step: Step) -> Step:
    """Run the step, whose answer may be cut off, then stay silent until the event is set."""

    async def wait(request: Request, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(Cut):
            await step(request, writer)
        await event.wait()
        raise Cut

    return wait


def in_pieces(text: str) -> list[str]:
    """Cut a text as streams do; a long one in larger pieces, as so many events take long."""
    size = max(5, len(text) // 50)
    return [text[start : start + size] for start in range(0, len(text), size)]


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


# The server -------------------------------------------------------------------------------------


@dataclass
class ScriptedServer:
    """Running server; subclasses choose the step that answers a request.

    Attributes:
        received: every request so far, headers included.
        requests: the bodies of the questions among them.
        connections: how many were opened.
        tls: its TLS context; None: plain http.
    """

    received: list[Request] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    tls: ssl.SSLContext | None = None
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Value for `LLM__BASE_URL`."""
        return self.url

    def is_question(self, request: Request) -> bool:
        """Whether a request asks the model."""
        raise NotImplementedError

    def step_for(self, request: Request) -> Step:
        """Return the step that answers a request."""
        raise NotImplementedError

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds after a request; the test's own time is the bound."""
        async with self._arrived:
            await self._arrived.wait_for(holds)

    async def wait_for_requests(self, count: int) -> None:
        """Wait until so many questions have come in."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def start(self) -> None:
        """Listen; after a stop, on the same port."""
        self._server = await asyncio.start_server(
            self._converse, "127.0.0.1", self.port, backlog=2048, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections and cut open ones."""
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
                await self.step_for(request)(request, writer)
                await writer.drain()
        except (Cut, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _remember(self, request: Request) -> None:
        self.received.append(request)
        if self.is_question(request):
            self.requests.append(request.body)
        async with self._arrived:
            self._arrived.notify_all()


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


def _head(code: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)
