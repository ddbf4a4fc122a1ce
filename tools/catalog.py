"""The list of built-in tools.

A new tool is a file of its own and a line in `CATALOG`, or in `IN_WORKSPACES` if it works in the
folder of a chat.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import Final

from tools.base import Tool
from tools.calculator.tool import open_calculator
from tools.commands import open_commands
from tools.dates import date_time
from tools.documents.client import open_reader
from tools.registry import Registry
from tools.sandbox.errors import ToolUnavailable
from tools.sandbox.pool import SandboxPolicy
from tools.schema import tool_from
from tools.settings import COMMANDS, MAX_RESULT_BYTES, WORKSPACE, McpServer, ToolsSettings
from tools.weather import open_weather
from tools.web.fetch import open_web_fetch
from tools.web.search import open_web_search
from tools.workspace.tool import workspace_tools
from tools.workspace.workspaces import Workspaces

_NO_MCP: Final = "The package mcp is missing: pip install 'signal-tee-bot[mcp]'."

NO_SERVERS: Final[Mapping[str, McpServer]] = {}

Opened = AbstractAsyncContextManager[Tool | Sequence[Tool]]
"""Provides tools as long as it is open; raises ToolUnavailable if they cannot work."""

Opener = Callable[[ToolsSettings, SandboxPolicy, int], Opened]
"""Opens tools; the number bounds the bytes of a result."""

WorkspaceOpener = Callable[[Workspaces, ToolsSettings, SandboxPolicy, int], Opened]

CATALOG: Final[Mapping[str, Tool | Opener]] = {
    "calculate": lambda _, sandboxes, __: open_calculator(sandboxes),
    "date_time": tool_from(date_time, given={"home": lambda caller: caller.zone}),
    "web_fetch": lambda _, sandboxes, limit: open_web_fetch(sandboxes, result_limit_bytes=limit),
    "get_weather": lambda settings, *_: open_weather(settings.weather),
    "web_search": lambda settings, sandboxes, _: open_web_search(settings.web_search, sandboxes),
}


@asynccontextmanager
async def _files_of(
    workspaces: Workspaces, sandboxes: SandboxPolicy
) -> AsyncIterator[Sequence[Tool]]:
    async with open_reader(sandboxes) as read:
        yield workspace_tools(workspaces, read)


IN_WORKSPACES: Final[Mapping[str, WorkspaceOpener]] = {
    WORKSPACE: lambda workspaces, _, sandboxes, __: _files_of(workspaces, sandboxes),
    COMMANDS: lambda workspaces, settings, _, limit: open_commands(
        workspaces, settings.commands, result_limit_bytes=limit
    ),
}
"""Tools that work in the folder of the chat of a call, if chats have folders."""


def _sources(
    settings: ToolsSettings, sandboxes: SandboxPolicy, workspaces: Workspaces | None, limit: int
) -> Iterator[tuple[str, Opened]]:
    for name, entry in CATALOG.items():
        if isinstance(entry, Tool):
            yield name, nullcontext(entry)
        else:
            yield name, entry(settings, sandboxes, limit)
    if workspaces is not None and settings.in_use:
        for name, opener in IN_WORKSPACES.items():
            yield name, opener(workspaces, settings, sandboxes, limit)


@asynccontextmanager
async def open_tools(
    settings: ToolsSettings,
    sandboxes: SandboxPolicy | None = None,
    *,
    servers: Mapping[str, McpServer] = NO_SERVERS,
    workspaces: Workspaces | None = None,
    result_limit_bytes: int = MAX_RESULT_BYTES,
    keeps_last_words: bool = False,
) -> AsyncIterator[Registry]:
    """Provide the wanted tools; their processes and connections end with this context.

    Args:
        sandboxes: the walls that sandboxes must have; None: none.
        servers: MCP servers by their names, which are the prefix of their tools' names.
        workspaces: None: chats have no folders.
        result_limit_bytes: of a result, as UTF-8.
        keeps_last_words: see `last_words` of the registry.
    """
    sandboxes = sandboxes or SandboxPolicy()
    withheld = settings.withheld
    registry = Registry(withheld=withheld)
    registry.last_words = {} if keeps_last_words else None
    async with AsyncExitStack() as resources:
        for name, source in _sources(settings, sandboxes, workspaces, result_limit_bytes):
            if name in withheld:
                continue
            try:
                if name in IN_WORKSPACES:
                    # If the first call finds a wall missing, it withdraws the tools.
                    sandboxes.require_walls(around_folder=True)
                offered = await resources.enter_async_context(source)
            except ToolUnavailable as error:
                registry.withdraw(name, str(error))
            else:
                registry.offer(name, (offered,) if isinstance(offered, Tool) else offered)
        if servers and settings.in_use:
            await _open_mcp_servers(dict(sorted(servers.items())), registry, resources)
        yield registry


async def _open_mcp_servers(
    servers: Mapping[str, McpServer], registry: Registry, resources: AsyncExitStack
) -> None:
    try:
        # Costs half a second and 55 MB, so it is imported only if there is a server.
        from tools.mcp.servers import open_mcp_servers  # noqa: PLC0415
    except ImportError:
        for name in servers:
            registry.withdraw(name, _NO_MCP)
    else:
        await resources.enter_async_context(open_mcp_servers(servers, registry))
