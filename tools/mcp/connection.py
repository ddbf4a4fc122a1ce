"""The connection to one MCP server, kept by one task: opened, served, lost, opened again.

The SDK's cancel scopes have to be left in the task that entered them, so everything of a
connection happens inside `keep`; calls come from other tasks and only send a request over the
session that there is. Whatever ends a connection ends in `keep`: the server's tools are withdrawn
with the reason, and after a wait there is another attempt.

Nothing that a server may ask of a client (sampling, elicitation, roots) is offered to it. The
list is read again when the server says that it changed, and from time to time: notifications get
lost, and an HTTP server that is gone says nothing.
"""

import asyncio
import random
from contextlib import AbstractAsyncContextManager, suppress
from time import monotonic
from typing import Any, Final, NoReturn

import structlog
from mcp import Client, MCPError
from mcp.client import ClientSession, IncomingMessage
from mcp.client._transport import TransportStreams
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from tools.base import ToolOutput
from tools.errors import ToolError, ToolTimeout
from tools.mcp.errors import McpError, first_cause, reason
from tools.mcp.last_words import LastWords
from tools.mcp.listing import MAX_TOOLS, remark, usable_tools
from tools.mcp.results import output_of, text_of
from tools.mcp.stdio import socket_streams, stdio_streams
from tools.mcp.streamable_http import http_streams
from tools.mcp.transport import bounded
from tools.registry import Registry
from tools.results import mark
from tools.settings import McpServer

CALLS_AT_ONCE: Final = 8
REFRESH_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.5
"""Between a change of the list and reading it, so that a burst of changes is read once."""
FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
STABLE_SECONDS: Final = 60.0
"""A connection that lasted this long starts the waits between attempts anew."""
MAX_LISTED: Final = 1_000
"""Tools of one server among which the operator may choose."""
_MAX_PAGES: Final = 32
_MAX_ERROR_BYTES: Final = 2048

# A server of before 2026 may not bear a question that it does not know, and one of after may know
# no handshake; an attempt that failed is followed by one of the other kind.
_MODES: Final = ("legacy", "auto")
_CLIENT: Final = Implementation(name="signal-tee-bot", version="1")
_CALL_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(
    CallToolResult | InputRequiredResult
)

log = structlog.get_logger()


class McpConnection:
    """Offers one server's tools in a registry for as long as the server is there.

    Args:
        server: a command or a URL.
        registry: where its tools are offered, under its name as the source.
        last_words: keeps what a command writes to its standard error; discarded without it.
    """

    def __init__(
        self, server: McpServer, registry: Registry, last_words: LastWords | None = None
    ) -> None:
        self._server = server
        self._registry = registry
        self._last_words = last_words
        self._session: ClientSession | None = None
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._wake = asyncio.Event()
        self._end: McpError | None = None
        self._listed: list[Tool] | None = None
        self._own: frozenset[str] = frozenset()
        self._closing = False

    def close(self) -> None:
        """Say that `keep` is about to be cancelled for good, whatever the SDK makes of it."""
        self._closing = True

    async def keep(self) -> None:
        """Connect and connect again; ends by being cancelled."""
        failures = 0
        while not self._closing:
            began = monotonic()
            try:
                await self._connect(_MODES[failures % len(_MODES)])
            except Exception as error:  # the boundary around the SDK and whatever a server does
                self._lost(first_cause(error))
            stable = monotonic() - began > STABLE_SECONDS
            failures = 1 if stable else failures + 1
            await self._pause(failures)

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool by the server's own name for it, and return what it says and gives.

        The SDK's own method would also hold the answer against the server's output schema, whose
        regular expressions may take for ever.

        Raises:
            ToolError: the server is not there, refuses, or says that the call failed.
            ToolTimeout: it took longer than the server's time-out; the server was told.
        """
        name, session = self._server.name, self._session
        if session is None:
            raise ToolError(f"The MCP server {name} is not connected right now.")
        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        try:
            async with asyncio.timeout(self._server.timeout_seconds), self._slots:
                result = await session.send_request(request, _CALL_RESULT)
        except TimeoutError:
            raise ToolTimeout(
                f"The MCP server {name} did not answer within "
                f"{self._server.timeout_seconds:g} seconds."
            ) from None
        except MCPError as error:
            self._wake.set()  # the list may be old, or the session gone: reading the list shows it
            lost = self._end is not None or session is not self._session
            raise ToolError(_refusal(name, error, lost=lost)) from None
        except ValidationError:
            raise ToolError(f"The MCP server {name} sent what is no result.") from None
        return _output(name, result)

    async def _connect(self, mode: str) -> NoReturn:
        """Connect once and serve until the connection is lost."""
        self._end, self._listed, self._own = None, None, frozenset()
        client = Client(
            bounded(_streams(self._server, self._last_words), self._at_end),
            mode=mode,
            client_info=_CLIENT,
            message_handler=self._notified,
            cache=None,
            read_timeout_seconds=self._server.timeout_seconds,
        )
        async with asyncio.timeout(self._server.timeout_seconds) as starting, client:
            self._session = client.session
            try:
                await self._list(client)
                starting.reschedule(None)
                await self._follow(client)
            finally:
                self._session = None

    async def _follow(self, client: Client) -> NoReturn:
        """Follow what the server offers, until it ends."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._wake.wait()
            if self._end is not None:
                raise self._end
            await asyncio.sleep(SETTLE_SECONDS)
            await self._list(client)

    async def _list(self, client: Client) -> None:
        """Read the server's list and offer it, where it is another than before."""
        self._wake.clear()
        listed = await _all_tools(client, MAX_LISTED if self._server.tools else MAX_TOOLS)
        if listed == self._listed:
            return
        name, registry = self._server.name, self._registry
        taken = {tool.name for tool in registry} - self._own
        tools = usable_tools(
            name,
            listed,
            call=self.call,
            timeout_seconds=self._server.timeout_seconds,
            taken=taken,
            chosen=self._server.tools,
        )
        registry.offer(name, tools, remark(self._server, listed, tools))
        self._own = frozenset(tool.name for tool in tools)
        if self._listed is None:
            log.info("mcp.connected", tool=name, count=len(tools))
        wanted = len(self._server.tools) or len(listed)
        if left_out := wanted - len(tools):
            log.warning("mcp.tools_left_out", tool=name, count=left_out)
        self._listed = listed

    async def _notified(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._wake.set()

    def _at_end(self, error: McpError) -> None:
        self._end = error
        self._wake.set()

    def _lost(self, error: BaseException) -> None:
        name, message = (
            self._server.name,
            reason(error, timeout_seconds=self._server.timeout_seconds),
        )
        # It may last for days.
        say = log.debug if self._registry.absent.get(name) == message else log.warning
        say("mcp.lost", tool=name, reason=type(error).__name__)
        self._registry.withdraw(name, message)

    async def _pause(self, failures: int) -> None:
        """Wait before an attempt; chance keeps many clients from coming back together."""
        longest = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 16))
        delay = random.uniform(longest / 2, longest)  # noqa: S311  # a wait is no secret
        say = log.info if failures == 1 else log.debug
        say("mcp.retrying", tool=self._server.name, delay_seconds=round(delay, 1))
        await asyncio.sleep(delay)


def _streams(
    server: McpServer, last_words: LastWords | None
) -> AbstractAsyncContextManager[TransportStreams]:
    if server.url is None:
        return stdio_streams(server, last_words)
    scheme, _, path = server.url.partition(":")
    if scheme == "unix":
        return socket_streams(path, timeout_seconds=server.timeout_seconds)
    return http_streams(server.url, headers=server.headers, timeout_seconds=server.timeout_seconds)


async def _all_tools(client: Client, enough: int) -> list[Tool]:
    """Read a list page by page, as far as it can be of use."""
    tools: list[Tool] = []
    if client.server_capabilities.tools is None:
        return tools
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) > enough:
            break
    return tools


def _output(name: str, result: CallToolResult | InputRequiredResult) -> ToolOutput:
    if isinstance(result, InputRequiredResult):
        raise ToolError(f"The MCP server {name} asks back, which is not possible here.")
    if result.is_error:
        said = _framed(text_of(result))
        raise ToolError(f"The MCP server {name} says that the call failed." + said)
    return output_of(result)


def _refusal(name: str, error: MCPError, *, lost: bool) -> str:
    if lost:
        return (
            f"The connection to the MCP server {name} was lost before it answered; "
            "whether the call had an effect is not known."
        )
    return f"The MCP server {name} refused the call (code {error.code})." + _framed(error.message)


def _framed(text: str) -> str:
    """Mark what a server says of a failure; the executor marks results only."""
    return "\n" + mark(text, "an MCP server", _MAX_ERROR_BYTES) if text.strip() else ""
