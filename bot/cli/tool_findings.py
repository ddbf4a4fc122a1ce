"""Findings of `check` about the tools: the sandboxes they run in, built-in ones, MCP servers."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from bot.chat.own_tools import LISTED, offer_own_tools
from bot.cli.finding import PART_SECONDS, Finding, failed, ok, warning
from bot.cli.model_findings import with_tools
from bot.config.settings import Settings
from bot.errors import BotError
from tools.base import Tool
from tools.catalog import open_tools
from tools.commands import try_jail
from tools.display import visible
from tools.registry import Registry, probe
from tools.sandbox.pool import SandboxPolicy, WorkError, WorkUnavailable, survey
from tools.sandbox.walls import ESSENTIAL, Wall
from tools.settings import COMMANDS, McpServer
from tools.workspace.workspaces import Workspaces

MAX_LAST_LINE_CHARACTERS: Final = 300
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*m")
_SAYS_NOTHING: Final = re.compile(
    r"[\W_]*|hint: .*|Node\.js v.*|\s+at .*|\s+'.*"
    r"|\s+(address|code|errno|path|port|requireStack|syscall|url): .*"
    r"|npm (error|ERR!) (404( Note.*| tarball.*)?|A complete log.*)"
)
"""Lines that uv, Node and npm write below the reason."""


@asynccontextmanager
async def listed_tools(
    settings: Settings,
    sandboxes: SandboxPolicy,
    servers: Mapping[str, McpServer],
    last_words: dict[str, bytes],
) -> AsyncIterator[Registry]:
    """Provide the tools of a bot; do not call the tools that need its parts."""
    workspaces = None
    if settings.tools.workspace.for_ != "nobody":
        # This makes no folder, so any name will do.
        folder = settings.workspaces_folder
        workspaces = Workspaces(folder, settings.tools.workspace, str, sandboxes)
    async with open_tools(
        settings.tools, sandboxes, servers=servers, workspaces=workspaces, last_words=last_words
    ) as registry:
        offer_own_tools(settings, registry, LISTED)
        yield registry


async def tools(settings: Settings, *, asks: bool = False) -> AsyncIterator[Finding]:
    """Open all tools and try them."""
    last_words = dict[str, bytes]()
    servers = settings.mcp.servers if settings.tools.in_use else {}
    sandboxes = SandboxPolicy(required=settings.sandbox_required)
    yield await _sandboxes(sandboxes)
    async with listed_tools(settings, sandboxes, servers, last_words) as registry:
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_SECONDS):
                await registry.settled()
        troubles = await probe(registry)
        if registry.offered_by(COMMANDS):
            try:
                kind, refused = await try_jail()
            except WorkUnavailable as error:
                registry.withdraw(COMMANDS, str(error))
            else:
                why = f" Not by {'; '.join(refused)}." if refused else ""
                yield ok(COMMANDS, f"Walled off by {kind}, without a network.{why}")
        for finding in _built_in(registry, troubles, servers):
            yield finding
        for name, server in sorted(servers.items()):
            yield _server(name, server, registry, last_line(last_words.get(name, b"")))
        if not len(registry):
            yield warning("tools", "None: the model answers from what it knows.")
        elif asks:
            try:
                yield await with_tools(settings, registry.tools)
            except BotError as error:
                yield failed("tools", f"The model answers no question with tools. {error}")


def _built_in(
    registry: Registry, troubles: Mapping[str, str], servers: Collection[str]
) -> Iterator[Finding]:
    of_servers = {tool.name for server in servers for tool in registry.offered_by(server) or ()}
    for tool in registry:
        if trouble := troubles.get(tool.name):
            yield warning(tool.name, f"Does not work now. {trouble}")
        elif tool.name not in of_servers:
            yield _ready(tool)
    for name, reason in sorted(registry.absent.items()):
        if name not in servers:
            yield warning(name, reason)


def _ready(tool: Tool) -> Finding:
    if tool.consent is not None:
        return ok(tool.name, "Ready; TOOLS__COMMANDS__APPROVAL says which calls are asked about.")
    return ok(tool.name, "Ready; asks before each call." if tool.side_effects else "Ready.")


def _server(name: str, server: McpServer, registry: Registry, last_words: str) -> Finding:
    """Say what an MCP server offers, or why it offers nothing and which setting names it."""
    setting = f"MCP__SERVERS__{name.upper()}__"
    see = f"See {setting}{'COMMAND' if server.command else 'URL'}."
    said = f'The last line of its error output: "{last_words}" ' if last_words else ""
    offered = registry.offered_by(name)
    if offered is None:
        return warning(
            name,
            f"The MCP server has not answered so far. {said}A first start that downloads something"
            f" may take a while: run check again, or raise {setting}TIMEOUT_SECONDS. {see}",
        )
    if reason := registry.absent.get(name):
        return warning(name, f"{reason} {said}{see}")
    asking = ", ".join(tool.name for tool in offered if tool.side_effects)
    counted = f"Ready. Tools: {len(offered)}; asking before each call: {asking or 'none'}."
    if not offered:
        counted = "The MCP server offers no tools."
    if remark := registry.remarks.get(name):
        return warning(name, f"{counted} {remark}")
    return ok(name, counted) if offered else warning(name, f"{counted} {see}")


def last_line(output: bytes) -> str:
    """Return the last informative line of an output, with invisible characters spelled out."""
    text = _COLOURS.sub("", output.decode(errors="replace"))
    lines = (line for line in reversed(text.splitlines()) if not _SAYS_NOTHING.fullmatch(line))
    line = visible(next(lines, "").strip())
    if len(line) <= MAX_LAST_LINE_CHARACTERS:
        return line
    return f"{line[: MAX_LAST_LINE_CHARACTERS - 1]}…"


async def _sandboxes(policy: SandboxPolicy) -> Finding:
    """Report missing walls of the kernel around sandboxes, and their consequences."""
    part = "sandboxes"
    try:
        await survey(policy)
        policy.require_walls()
    except WorkError as error:
        return failed(part, str(error))
    if not policy.missing:
        walls = ", ".join(Wall)
        return ok(part, f"Walled off by the kernel: {walls}.")
    words = f"This machine lacks {', '.join(policy.missing)}"
    if ESSENTIAL.isdisjoint(policy.missing):
        words += "; the other walls hold without it."
    else:
        words += (
            ": what breaks out of a sandbox may do what the bot may. SANDBOX=required runs nothing"
            " in one here."
        )
    return warning(part, words)
