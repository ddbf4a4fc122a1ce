"""What lies between a server's streams and the SDK's session: bounds on what the server may send.

The SDK reads as fast as a server writes, starts a task for each message, and refuses a whole list
for one tool that breaks the protocol. So messages are read at a bounded rate, which holds a
flooding server up at its own pipe; its unanswered questions are bounded; an answer of so many
parts that looking at them would hold up everybody else is refused; and what it lists is mended
before the session sees it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from mcp.client._transport import ReadStream, TransportStreams, WriteStream
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData
from mcp.types.jsonrpc import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp.types.methods import validate_server_result
from mcp.types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from tools.mcp.errors import McpError, ServerEnded, TooManyRequests

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
MESSAGES_PER_SECOND: Final = 500
MAX_VALUES: Final = 20_000
"""Of one answer: each costs the event loop up to 13 µs where the SDK validates it."""
_MAX_OPEN_REQUESTS: Final = 32


class Closing:
    """A stream end that is left with nothing to do: who opened the transport closes it."""

    async def aclose(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def bounded(
    transport: AbstractAsyncContextManager[TransportStreams], at_end: Callable[[McpError], None]
) -> AsyncIterator[TransportStreams]:
    """Open a transport with bounds on what the server may send.

    Args:
        transport: of the SDK's kind.
        at_end: called with the reason when nothing more will be read from the server.
    """
    async with transport as (messages, answers):
        open_requests = _OpenRequests()
        yield _Incoming(messages, open_requests, at_end), _Outgoing(answers, open_requests)


class _OpenRequests:
    """How many of the server's requests wait for an answer."""

    def __init__(self) -> None:
        self._count = 0

    def one_more(self) -> None:
        """Count a request.

        Raises:
            TooManyRequests: more are open than any use explains.
        """
        self._count += 1
        if self._count > _MAX_OPEN_REQUESTS:
            raise TooManyRequests("The MCP server asks and does not read the answers.")

    def one_less(self) -> None:
        """Count an answer."""
        self._count -= 1


class _Incoming(Closing):
    def __init__(
        self,
        messages: ReadStream[SessionMessage | Exception],
        open_requests: _OpenRequests,
        at_end: Callable[[McpError], None],
    ) -> None:
        self._messages = messages
        self._open_requests = open_requests
        self._at_end = at_end
        self._pace = _Pace()

    async def receive(self) -> SessionMessage | Exception:
        return await anext(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._next()
        except StopAsyncIteration:
            self._at_end(ServerEnded("The MCP server ended the connection."))
            raise
        except McpError as error:
            self._at_end(error)
            raise

    async def _next(self) -> SessionMessage | Exception:
        await self._pace.wait()
        item = await self._messages.__anext__()
        if isinstance(item, SessionMessage):
            if isinstance(item.message, JSONRPCRequest):
                self._open_requests.one_more()
            elif isinstance(item.message, JSONRPCResponse):
                item.message = _usable(item.message)
        return item

    async def aclose(self) -> None:
        await self._messages.aclose()


class _Outgoing(Closing):
    def __init__(self, answers: WriteStream[SessionMessage], open_requests: _OpenRequests) -> None:
        self._answers = answers
        self._open_requests = open_requests

    async def send(self, item: SessionMessage, /) -> None:
        await self._answers.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._open_requests.one_less()

    async def aclose(self) -> None:
        await self._answers.aclose()


class _Pace:
    """Lets MESSAGES_PER_SECOND through, then waits for the next second."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._count = 0

    async def wait(self) -> None:
        if self._count >= MESSAGES_PER_SECOND:
            await asyncio.sleep(self._began + 1 - monotonic())
        if monotonic() >= self._began + 1:
            self._began, self._count = monotonic(), 0
        self._count += 1


def _usable(response: JSONRPCResponse) -> JSONRPCResponse | JSONRPCError:
    """Return a mended answer, or an error in place of one that is not worth its time."""
    if _has_too_many_values(response.result):
        error = ErrorData(code=INTERNAL_ERROR, message="The answer has more parts than are read.")
        return JSONRPCError(jsonrpc=response.jsonrpc, id=response.id, error=error)
    _mend(response.result)
    return response


def _has_too_many_values(value: Any) -> bool:
    seen, waiting = 1, [value]
    while waiting and seen <= MAX_VALUES:
        found = waiting.pop()
        if isinstance(found, dict | list):
            seen += len(found)
            waiting += found.values() if isinstance(found, dict) else found
    return seen > MAX_VALUES


def _mend(result: dict[str, Any]) -> None:
    """Give a listed tool the `type` that its schema lacks, and no name where it is still wrong."""
    tools = result.get("tools")
    if isinstance(tools, list):
        result["tools"] = [_mended(tool) for tool in tools]


def _mended(tool: Any) -> Any:
    if isinstance(tool, dict) and isinstance(schema := tool.get("inputSchema"), dict):
        tool = {**tool, "inputSchema": {"type": "object", **schema}}
    try:
        validate_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [tool]})
    except ValidationError:
        return {"name": "", "inputSchema": {"type": "object"}}
    return tool
