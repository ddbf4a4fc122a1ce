"""The MCP servers of the settings, and the task that keeps the connection to each.

The SDK's cancel scopes must be left in the task that entered them, so a connection lives inside
`_Connection.keep`. Calls come from other tasks and only send a request over the open session.
When a connection ends, `keep` withdraws the server's tools with the reason, waits, and retries.

The bot offers servers none of a client's optional features (sampling, elicitation, roots). It reads
the list of tools again when the server reports a change, and from time to time, because
notifications get lost and a vanished HTTP server sends none.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import Any, Final, NoReturn

import httpx2
import structlog
from mcp import Client, MCPError, types
from mcp.client import ClientSession, IncomingMessage
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import TypeAdapter, ValidationError

from tools import ledger
from tools.base import ToolError, ToolOutput, mark
from tools.mcp.listing import MAX_TOOLS, remark, usable_tools
from tools.mcp.results import output_of
from tools.mcp.transports import McpError, bounded, open_streams
from tools.registry import Registry
from tools.sandbox.errors import WorkTimeout
from tools.settings import McpServer

CALLS_AT_ONCE: Final = 8
REFRESH_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 0.5
"""Between a change of the list and reading it, so that a burst of changes costs one read."""
FIRST_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
STABLE_SECONDS: Final = 60.0
"""After a connection that lasted this long, the next attempt follows soon."""
MAX_LISTED: Final = 1_000
"""Tools of one server among which the operator may choose."""
_MAX_PAGES: Final = 32
_MAX_ERROR_BYTES: Final = 2048

# Old servers may fail on the question of the protocol of 2026, and new ones may not know the old
# handshake: after a failure the next attempt uses the other mode.
_MODES: Final = ("legacy", "auto")
_CLIENT: Final = types.Implementation(name="signal-tee-bot", version="1")
_CALL_RESULT: Final[TypeAdapter[CallToolResult | InputRequiredResult]] = TypeAdapter(
    CallToolResult | InputRequiredResult
)

log = structlog.get_logger()


@asynccontextmanager
async def open_mcp_servers(
    servers: Mapping[str, McpServer], registry: Registry
) -> AsyncIterator[None]:
    """Offer the tools of servers while they are connected, without waiting for a connection."""
    leaving: Exception | None = None
    for name in servers:
        registry.expect(name)
    async with asyncio.TaskGroup() as owners:
        connections = [_Connection(name, server, registry) for name, server in servers.items()]
        tasks = [owners.create_task(connection.keep()) for connection in connections]
        try:
            yield
        except Exception as error:  # raised again below: the group would wrap it
            leaving = error
        finally:
            for connection, task in zip(connections, tasks, strict=True):
                connection.closing = True  # the SDK may swallow the cancellation
                task.cancel()
    if leaving is not None:
        raise leaving


class _Connection:
    def __init__(self, name: str, server: McpServer, registry: Registry) -> None:
        self._name = name
        self._server = server
        self._registry = registry
        self._session: ClientSession | None = None
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._wake = asyncio.Event()
        self._end: McpError | None = None
        self._listed: list[types.Tool] | None = None
        self.closing = False

    async def keep(self) -> None:
        """Connect again and again, until cancelled."""
        failures = 0
        while not self.closing:
            began = monotonic()
            try:
                await self._connect(_MODES[failures % len(_MODES)])
            except Exception as error:  # the boundary around the SDK and the server
                self._lost(error)
            stable = monotonic() - began > STABLE_SECONDS
            failures = 1 if stable else failures + 1
            await self._pause(failures)

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolOutput:
        """Call a tool by the server's own name for it.

        The SDK's own method would also check the answer with the server's output schema. A
        regular expression in it could take forever.

        Raises:
            ToolError: the server is not connected, refuses, or reports a failure.
            WorkTimeout: the call took longer than the server's time-out, and the server was told.
        """
        name, session = self._name, self._session
        if session is None:
            raise ToolError(f"The MCP server {name} is not connected right now.")
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=tool, arguments=arguments)
        )
        try:
            async with asyncio.timeout(self._server.timeout_seconds), self._slots:
                sent = json.dumps(arguments, ensure_ascii=False, default=str)
                ledger.note("tool", name, f"{tool} {sent}", len(sent.encode(errors="replace")))
                result = await session.send_request(request, _CALL_RESULT)
        except TimeoutError:
            seconds = self._server.timeout_seconds
            sentence = f"The MCP server {name} did not answer within {seconds:g} seconds."
            raise WorkTimeout(sentence) from None
        except MCPError as error:
            self._wake.set()  # reading the list shows whether the session is gone
            lost = self._end is not None or session is not self._session
            raise ToolError(_refusal(name, error, lost=lost)) from None
        except ValidationError:
            raise ToolError(f"The MCP server {name} sent what is no result.") from None
        return _output(name, result)

    async def _connect(self, mode: str) -> NoReturn:
        """Connect once and serve until the connection is lost."""
        self._end, self._listed = None, None
        kept = self._registry.last_words
        last_words = None if kept is None else kept.setdefault(self._name, bytearray())
        client = Client(
            bounded(open_streams(self._server, last_words), self._at_end),
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
        """Follow changes of the list, until the connection ends."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._wake.wait()
            if self._end is not None:
                raise self._end
            await asyncio.sleep(SETTLE_SECONDS)
            await self._list(client)

    async def _list(self, client: Client) -> None:
        """Read the server's list and offer it if it has changed."""
        self._wake.clear()
        listed = await _all_tools(client, MAX_LISTED if self._server.tools else MAX_TOOLS)
        if listed == self._listed:
            return
        name, registry = self._name, self._registry
        usable = await asyncio.to_thread(  # strangers' schemas take a while
            usable_tools,
            name,
            listed,
            call=self.call,
            timeout_seconds=self._server.timeout_seconds,
            chosen=self._server.tools,
        )
        taken = {tool.name for tool in registry.tools}.difference(
            tool.name for tool in registry.offered_by(name) or ()
        )
        tools = [tool for tool in usable if tool.name not in taken]
        registry.offer(name, tools, remark(name, self._server.tools, listed, tools))
        if self._listed is None:
            log.info("mcp.connected", tool=name, count=len(tools))
        wanted = len(self._server.tools) or len(listed)
        if left_out := wanted - len(tools):
            log.warning("mcp.tools_left_out", tool=name, count=left_out)
        self._listed = listed

    async def _notified(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._wake.set()

    def _at_end(self, error: McpError) -> None:
        self._end = error
        self._wake.set()

    def _lost(self, error: BaseException) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]  # the others are its consequences
        name, message = self._name, _reason(error, self._server.timeout_seconds)
        # An outage may last for days.
        say = log.debug if self._registry.absent.get(name) == message else log.warning
        say("mcp.lost", tool=name, reason=message)
        self._registry.withdraw(name, message)

    async def _pause(self, failures: int) -> None:
        """Wait before an attempt, for a random time so that clients do not return all at once."""
        longest = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 16))
        delay = random.uniform(longest / 2, longest)  # noqa: S311  # a wait is no secret
        say = log.info if failures == 1 else log.debug
        say("mcp.retrying", tool=self._name, delay_seconds=round(delay, 1))
        await asyncio.sleep(delay)


async def _all_tools(client: Client, enough: int) -> list[types.Tool]:
    """Read a list page by page, until it has more than `enough` tools."""
    tools: list[types.Tool] = []
    if client.server_capabilities.tools is None:
        return tools
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None or len(tools) > enough:
            break
    return tools


def _output(name: str, result: CallToolResult | InputRequiredResult) -> ToolOutput:
    if isinstance(result, InputRequiredResult):
        raise ToolError(f"The MCP server {name} asks back, which is not possible here.")
    if result.is_error:
        said = _framed(output_of(result, most_files=0).text)
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
    """Mark a server's words about a failure; the executor marks only results."""
    return "\n" + mark(text, "an MCP server", _MAX_ERROR_BYTES) if text.strip() else ""


def _reason(error: BaseException, timeout_seconds: float) -> str:
    """Return a sentence about the end of a connection, without quoting the server."""
    match error:
        case McpError():
            sentence = str(error)
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            sentence = "The MCP server could not be reached."
        case TimeoutError() | MCPError(code=types.REQUEST_TIMEOUT):
            sentence = f"The MCP server did not answer within {timeout_seconds:g} seconds."
        case OSError():
            sentence = "The MCP server's command could not be started."
        case MCPError(code=types.CONNECTION_CLOSED):
            sentence = "The MCP server ended the connection."
        case MCPError(code=types.METHOD_NOT_FOUND):
            sentence = "What answers does not speak MCP. Is its address, or its command, right?"
        case MCPError():
            sentence = f"The MCP server refused the connection (code {error.code})."
        case _:
            sentence = f"The connection to the MCP server was lost ({type(error).__name__})."
    return sentence
