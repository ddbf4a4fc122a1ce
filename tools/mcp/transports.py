"""Transports to MCP servers: a command's standard streams, a Unix socket, streamable HTTP.

(https://modelcontextprotocol.io/specification, Transports.) All are bounded between their streams
and the SDK's session. The SDK reads as fast as a server writes, starts a task for each message, and
refuses a whole list for one tool that breaks the protocol. Here messages are read at a bounded
rate, which slows a flooding server down at its own pipe. The server's unanswered questions and the
parts of an answer are bounded, and lists of tools are repaired before the session sees them.
"""

import asyncio
import os
import shutil
import signal
import ssl
import sys
from asyncio.subprocess import DEVNULL, PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Any, Final, Self, cast

import httpx2
from anyio import BrokenResourceError
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData
from mcp.types.jsonrpc import (
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp.types.methods import validate_server_result
from mcp.types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from tools.http import AiohttpTransport, new_tls_context
from tools.mcp.results import UNKNOWN_BLOCK
from tools.settings import McpServer

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
MESSAGES_PER_SECOND: Final = 500
MAX_VALUES: Final = 20_000
"""In one answer: each costs the event loop up to 13 µs when the SDK validates it."""
_MAX_OPEN_REQUESTS: Final = 32


Messages = AsyncIterator[SessionMessage | Exception]
"""Messages of a server; a malformed one is an exception."""
Send = Callable[[SessionMessage], Awaitable[None]]
Streams = tuple[Messages, Send]


class McpError(Exception):
    """A problem that ends the connection to a server; its text is a sentence for the operator."""


def open_streams(
    server: McpServer, last_words: bytearray | None
) -> AbstractAsyncContextManager[Streams]:
    """Return the way to a server; `last_words` keeps the end of a command's standard error."""
    if server.url is None:
        return _stdio(server, last_words)
    scheme, _, path = server.url.partition(":")
    if scheme == "unix":
        return _socket(path, timeout_seconds=server.timeout_seconds)
    return _http(server.url, server)


# Bounds -------------------------------------------------------------------------------------------


@asynccontextmanager
async def bounded(
    transport: AbstractAsyncContextManager[Streams], at_end: Callable[[McpError], None]
) -> AsyncIterator[TransportStreams]:
    """Open a transport for the SDK with bounds on what the server may send.

    `at_end` is called with the reason when nothing more will be read from the server.
    """
    async with transport as (messages, send):
        both = _Bounded(messages, send, at_end)
        yield both, both


class _Bounded:
    """Both streams of a server, as the SDK wants them; the owner of the transport closes them."""

    def __init__(self, messages: Messages, send: Send, at_end: Callable[[McpError], None]) -> None:
        self._messages = messages
        self._send = send
        self._at_end = at_end
        self._second_began = monotonic()
        self._this_second = 0
        self._open_requests = 0
        self._version = LATEST_HANDSHAKE_VERSION

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        await self._wait_for_pace()
        try:
            item = await anext(self._messages)
        except StopAsyncIteration:
            self._at_end(McpError("The MCP server ended the connection."))
            raise
        except McpError as error:
            self._at_end(error)
            raise
        if isinstance(item, SessionMessage):
            if isinstance(item.message, JSONRPCRequest):
                self._count_request()
            elif isinstance(item.message, JSONRPCResponse):
                self._version = item.message.result.get("protocolVersion", self._version)
                item.message = _usable(item.message, self._version)
        return item

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await anext(self)

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message, perhaps the answer to a question of the server."""
        await self._send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._open_requests -= 1

    async def aclose(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""

    def _count_request(self) -> None:
        self._open_requests += 1
        if self._open_requests > _MAX_OPEN_REQUESTS:
            error = McpError("The MCP server asks and does not read the answers.")
            self._at_end(error)
            raise error

    async def _wait_for_pace(self) -> None:
        if self._this_second >= MESSAGES_PER_SECOND:
            await asyncio.sleep(self._second_began + 1 - monotonic())
        if monotonic() >= self._second_began + 1:
            self._second_began, self._this_second = monotonic(), 0
        self._this_second += 1


def count_values(value: object, enough: int) -> int:
    """Return the number of values in a JSON value, or any number above `enough`."""
    seen, waiting = 1, [value]
    while waiting and seen <= enough:
        found = waiting.pop()
        if isinstance(found, dict | list):
            seen += len(found)
            waiting += found.values() if isinstance(found, dict) else found
    return seen


def _usable(response: JSONRPCResponse, version: object) -> JSONRPCResponse | JSONRPCError:
    """Return a response with its list or result repaired, or an error if it has too many parts."""
    if count_values(response.result, MAX_VALUES) > MAX_VALUES:
        error = ErrorData(code=INTERNAL_ERROR, message="The answer has more parts than are read.")
        return JSONRPCError(jsonrpc=response.jsonrpc, id=response.id, error=error)
    tools = response.result.get("tools")
    if isinstance(tools, list):
        response.result["tools"] = [_repaired(tool) for tool in tools]
    elif isinstance(content := response.result.get("content"), list):
        _repair_result(response.result, content, str(version))
    return response


def _repair_result(result: dict[str, Any], content: list[Any], version: str) -> None:
    """Replace, in place, the parts that the SDK does not know: the call has run already."""
    result["content"] = [_repaired_block(block, version) for block in content]
    structured = result.get("structuredContent", {})
    if structured is None:
        del result["structuredContent"]
    elif not isinstance(structured, dict):
        result["structuredContent"] = {"result": structured}
    if not isinstance(result.get("isError", False), bool):
        result["isError"] = str(result["isError"]).lower() == "true"


def _repaired_block(block: Any, version: str) -> dict[str, Any]:
    match block:
        case str() | {"type": "text", "text": str()}:
            text = block if isinstance(block, str) else block["text"]
        case {"type": "image" | "audio" | "resource" | "resource_link"} if _is_known(
            block, version
        ):
            return cast("dict[str, Any]", block)
        case {"text": str() as text}:
            pass
        case _:
            text = UNKNOWN_BLOCK
    return {"type": "text", "text": text}


def _is_known(block: dict[str, Any], version: str) -> bool:
    try:
        validate_server_result("tools/call", version, {"content": [block]})
    except KeyError:
        return True
    except ValueError:
        return False
    return True


def _repaired(tool: Any) -> Any:
    """Add the `type` that a tool's schema lacks; remove the name of a tool that is still wrong."""
    if isinstance(tool, dict) and isinstance(schema := tool.get("inputSchema"), dict):
        tool = {**tool, "inputSchema": {"type": "object", **schema}}
    try:
        validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [tool]})
    except ValidationError:
        return {"name": "", "inputSchema": {"type": "object"}}
    return tool


# Standard streams ---------------------------------------------------------------------------------

EXIT_SECONDS: Final = 1.0
"""For each step of ending a process."""
MAX_UNREAD_BYTES: Final = 1024 * 1024
_STDERR: Final = 2
_PART_OF: Final = {"uvx": "uv (pip install uv)", "npx": "Node.js"}
_INHERITED: Final = (
    *("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE"),  # for a proxy that opens TLS
)

MAX_LAST_WORDS_BYTES: Final = 8_192


@asynccontextmanager
async def _stdio(server: McpServer, last_words: bytearray | None) -> AsyncIterator[Streams]:
    """Run a server's command and speak with it, one message a line.

    The command gets a few common variables and the operator's for this server. The rest of the
    bot's environment holds secrets and is not passed on. Its program is searched on the PATH and
    then next to the bot's interpreter, where `uvx` is installed. At the end its standard input is
    closed, then its whole process group gets SIGTERM, then SIGKILL.

    Raises:
        McpError: the program is missing.
        OSError: the command cannot be started.
    """
    loop = asyncio.get_running_loop()
    environment = _environment(server.environment)
    if shutil.which(server.command[0], os.F_OK, environment["PATH"]) is None:
        raise not_found(server.command[0])
    transport, streams = await loop.subprocess_exec(
        lambda: _Streams(loop, last_words),
        *server.command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL if last_words is None else PIPE,
        env=environment,
        start_new_session=True,
    )
    group = transport.get_pid()
    stdin = cast("asyncio.StreamWriter", streams.stdin)
    try:
        yield _lines(cast("asyncio.StreamReader", streams.stdout)), partial(_write, stdin)
    finally:
        try:
            await _end(group, stdin, streams.exited)
        finally:
            _signal(group, signal.SIGKILL)
            if last_words is not None:
                await _within_bound(streams.stderr_ended)
            transport.close()


def not_found(program: str, *, root: Path = Path("/")) -> McpError:
    """Report a missing program with its remedy; an image without a system can install nothing."""
    part = _PART_OF.get(program)
    name = program if part else "The MCP server's command"
    if not Path(root, "etc/os-release").exists():
        return McpError(
            f"{name} was not found, and nothing can be installed in this image. Run the MCP server"
            " in a container of its own and name its URL."
        )
    if part:
        return McpError(f"{name} was not found on the bot's PATH. It is part of {part}.")
    return McpError(f"{name} was not found.")


@asynccontextmanager
async def _socket(path: str, *, timeout_seconds: float) -> AsyncIterator[Streams]:
    """Speak with a server whose standard streams are a Unix socket of another service.

    The service starts a process for each connection (systemd.socket(5), Accept=), which ends as
    it would when its standard input is closed.

    Raises:
        McpError: no server listens there, or the bot may not connect.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_MESSAGE_BYTES)
    except OSError as error:  # TimeoutError is one, too
        raise McpError("The MCP server could not be reached.") from error
    try:
        yield _lines(reader), partial(_write, writer)
    finally:
        writer.transport.abort()


class _Streams(SubprocessStreamProtocol):
    """The command's streams, and its exit, even while other processes still have its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, last_words: bytearray | None) -> None:
        super().__init__(limit=MAX_MESSAGE_BYTES, loop=loop)
        self._last_words = last_words
        self.exited = asyncio.Event()
        self.stderr_ended = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == _STDERR and self._last_words is not None and isinstance(data, bytes):
            self._last_words += data
            del self._last_words[:-MAX_LAST_WORDS_BYTES]
        else:
            super().pipe_data_received(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd == _STDERR:
            self.stderr_ended.set()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


def _environment(wanted: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    interpreter = str(Path(sys.executable).parent)
    path = os.pathsep.join((inherited.get("PATH") or os.defpath, interpreter))
    return {**inherited, "PATH": path, **wanted}


async def _end(group: int, stdin: asyncio.StreamWriter, exited: asyncio.Event) -> None:
    if not stdin.transport.is_closing():
        stdin.transport.abort()  # drops messages that the command has not read yet
    if not await _within_bound(exited):
        _signal(group, signal.SIGTERM)
        await _within_bound(exited)
    _signal(group, signal.SIGKILL)
    await _within_bound(exited)


async def _within_bound(event: asyncio.Event) -> bool:
    # Not `asyncio.timeout`: up to Python 3.11.2 a task that is being cancelled takes its end for
    # another cancellation.
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), EXIT_SECONDS)
    return event.is_set()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


async def _lines(stdout: asyncio.StreamReader) -> Messages:
    """Yield a message for each line of a command's output."""
    while True:
        try:
            line = await stdout.readline()
        except ValueError:
            raise McpError("The MCP server sent more at once than is taken in.") from None
        except ConnectionError:  # the end of a socket with unread data
            return
        if not line:
            return
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            yield error
        else:
            yield message


async def _write(stdin: asyncio.StreamWriter, item: SessionMessage) -> None:
    """Send a message to a command as a line.

    This never waits for the command to read, because a call that is given up has to be cancelled at
    once. A command that has left too much unread counts as gone.
    """
    if stdin.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
        raise BrokenResourceError
    message = item.message.model_dump_json(by_alias=True, exclude_unset=True)
    stdin.write(message.encode() + b"\n")


# HTTP ---------------------------------------------------------------------------------------------

GOODBYE_SECONDS: Final = 1.0
"""For telling a server that its session is over."""
LISTEN_SECONDS: Final = 300.0
"""How long a server may be silent on the stream of its notifications."""
_SPARE_SECONDS: Final = 2.0
MAX_CONNECTIONS: Final = 32


@asynccontextmanager
async def _http(url: str, server: McpServer) -> AsyncIterator[Streams]:
    """Speak with the operator's URL, which may be private; redirects are not followed.

    The SDK bounds one server-sent event, and this function one JSON answer. A request without an
    answer in time fails alone, not the session.
    """
    tls = new_tls_context() if httpx2.URL(url).scheme == "https" else None
    async with (
        httpx2.AsyncClient(
            headers={**server.headers, "accept-encoding": "identity"},
            timeout=server.timeout_seconds,
            transport=_BoundedHttp(server.timeout_seconds, tls),
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
            messages,
            answers,
        ),
    ):
        yield messages, answers.send


class _BoundedHttp(AiohttpTransport):
    def __init__(self, timeout_seconds: float, tls: ssl.SSLContext | None) -> None:
        super().__init__(max_connections=MAX_CONNECTIONS, silence_seconds=timeout_seconds, tls=tls)
        self._silence_seconds = {
            "GET": LISTEN_SECONDS,
            "POST": timeout_seconds + _SPARE_SECONDS,
            "DELETE": GOODBYE_SECONDS,
        }

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions["timeout"]["read"] = self._silence_seconds[request.method]
        try:
            response = await super().handle_async_request(request)
        except httpx2.ReadTimeout:
            return httpx2.Response(HTTPStatus.GATEWAY_TIMEOUT, request=request)
        try:
            _check_head(response)
        except BaseException:
            await response.aclose()
            raise
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _BoundedBody(cast("httpx2.AsyncByteStream", response.stream))
        return response


def _check_head(response: httpx2.Response) -> None:
    if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise McpError(
            f"The MCP server does not accept the credentials (HTTP {response.status_code})."
        )
    if response.is_redirect:
        raise McpError("The MCP server's URL redirects, which is not followed.")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("compressed although the request forbids it")


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that fails beyond MAX_MESSAGE_BYTES, which fails only its own request."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError("longer than is taken in")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()
