"""Which tools this program has. A new tool is a file of its own and one line in `CATALOG`.

One that works in the folder of a chat has its line in `IN_WORKSPACES`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Final

from documents.client import open_reader
from sandbox.errors import WorkUnavailable
from sandbox.policy import SandboxPolicy
from tools.base import Tool
from tools.calculator.tool import open_calculator, open_converter
from tools.clock import current_time
from tools.commands.tool import open_commands
from tools.dates import date_difference, shift_date
from tools.errors import ToolUnavailable
from tools.mcp.last_words import LastWords
from tools.registry import Registry
from tools.schema import tool_from
from tools.settings import McpServer, ToolSettings
from tools.weather.tool import open_weather
from tools.web.fetch import open_web_fetch
from tools.web.search import open_web_search
from tools.workspace.tool import workspace_tools
from tools.workspace.workspaces import Workspaces

_NO_MCP: Final = "The package mcp is missing: pip install 'signal-tee-bot[mcp]'."

WORKSPACE: Final = "workspace"
"""The source of all tools that work with files."""
COMMANDS: Final = "commands"
"""The source of the tools that run commands."""

Source = AbstractAsyncContextManager[Sequence[Tool]]
"""Provides tools as long as its context is open."""

Opener = Callable[[ToolSettings, SandboxPolicy], AbstractAsyncContextManager[Tool]]
"""Provides a tool as long as its context is open; raises ToolUnavailable where it cannot."""


def offering(tool: Tool) -> Opener:
    """Return the opener of a tool that needs no settings and holds nothing."""

    @asynccontextmanager
    async def opened(_: ToolSettings, __: SandboxPolicy) -> AsyncIterator[Tool]:
        yield tool

    return opened


CATALOG: Final[Mapping[str, Opener]] = {
    "calculate": lambda _, sandboxes: open_calculator(sandboxes),
    "convert_units": lambda _, sandboxes: open_converter(sandboxes),
    "shift_date": offering(tool_from(shift_date)),
    "date_difference": offering(tool_from(date_difference)),
    "current_time": offering(tool_from(current_time)),
    "web_fetch": lambda settings, sandboxes: open_web_fetch(settings, sandboxes=sandboxes),
    "get_weather": lambda settings, _: open_weather(settings.weather),
    "web_search": lambda settings, sandboxes: open_web_search(
        settings.web_search, sandboxes=sandboxes
    ),
}


@asynccontextmanager
async def _files_of(
    workspaces: Workspaces, sandboxes: SandboxPolicy
) -> AsyncIterator[Sequence[Tool]]:
    async with open_reader(sandboxes=sandboxes) as read:
        yield workspace_tools(workspaces, read)


IN_WORKSPACES: Final[Mapping[str, Callable[[Workspaces, ToolSettings, SandboxPolicy], Source]]] = {
    WORKSPACE: lambda workspaces, _, sandboxes: _files_of(workspaces, sandboxes),
    COMMANDS: lambda workspaces, settings, sandboxes: open_commands(
        workspaces, settings.commands, sandboxes
    ),
}
"""Tools that work in the folder of the chat that they are called in, where chats have one."""


@asynccontextmanager
async def open_tools(
    settings: ToolSettings,
    sandboxes: SandboxPolicy | None = None,
    *,
    last_words: LastWords | None = None,
    workspaces: Workspaces | None = None,
) -> AsyncIterator[Registry]:
    """Provide the wanted tools; what they hold (processes, connections) is closed at the end.

    Args:
        settings: which are wanted, and what they need.
        sandboxes: what is demanded of those that run in sandboxes; nothing without it.
        last_words: keeps what MCP servers write to their standard error; discarded without it.
        workspaces: folders of chats; None: no chat has one.
    """
    sandboxes = sandboxes or SandboxPolicy()
    registry = Registry()
    async with AsyncExitStack() as resources:
        for name, opened in CATALOG.items():
            if name in settings.disabled:
                continue
            try:
                tool = await resources.enter_async_context(opened(settings, sandboxes))
            except (ToolUnavailable, WorkUnavailable) as error:
                registry.withdraw(name, str(error))
            else:
                registry.offer(name, (tool,))
        if workspaces is not None:
            await _offer_in_workspaces(workspaces, settings, sandboxes, registry, resources)
        if settings.mcp_servers:
            await _open_mcp_servers(settings.mcp_servers, registry, resources, last_words)
        yield registry


async def _offer_in_workspaces(
    workspaces: Workspaces,
    settings: ToolSettings,
    sandboxes: SandboxPolicy,
    registry: Registry,
    resources: AsyncExitStack,
) -> None:
    """Offer the tools of workspaces, unless it is known already that nothing walls them off.

    Else the first call finds it out, and they are withdrawn then.
    """
    for name, opened in IN_WORKSPACES.items():
        if name in settings.disabled:
            continue
        try:
            sandboxes.require_walls_around_a_folder()
            source = opened(workspaces, settings, sandboxes)
            registry.offer(name, await resources.enter_async_context(source))
        except (ToolUnavailable, WorkUnavailable) as error:
            registry.withdraw(name, str(error))


async def _open_mcp_servers(
    servers: Sequence[McpServer],
    registry: Registry,
    resources: AsyncExitStack,
    last_words: LastWords | None,
) -> None:
    try:
        # Half a second and 55 MB, which only those pay who have a server.
        from tools.mcp.servers import open_mcp_servers  # noqa: PLC0415
    except ImportError:
        for server in servers:
            registry.withdraw(server.name, _NO_MCP)
    else:
        await resources.enter_async_context(open_mcp_servers(servers, registry, last_words))
