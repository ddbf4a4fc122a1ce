"""Findings of `check` about the tools: the sandboxes they run in, built-in ones, MCP servers."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from bot.cli.finding import Finding, failed, ok, warning
from bot.config.settings import Settings
from bot.wiring.own_tools import offer_own_tools, only_listed
from bot.wiring.parts import tool_settings
from sandbox.errors import WorkError, WorkUnavailable
from sandbox.jail.control_groups import Controller
from sandbox.jail.jail import Kind
from sandbox.policy import SandboxPolicy
from sandbox.pool import survey
from sandbox.walls import ESSENTIAL, Wall
from tools.base import Tool
from tools.catalog import COMMANDS, open_tools
from tools.commands.tool import try_jail
from tools.mcp.last_words import LastWords
from tools.people import Nobody
from tools.probing import probe
from tools.registry import Registry
from tools.settings import McpServer
from tools.web.proxy import PORTS
from tools.workspace.workspaces import Workspaces

PART_SECONDS: Final = 20.0
_BOUNDED: Final = {
    Controller.MEMORY: "memory",
    Controller.PIDS: "processes",
    Controller.CPU: "share of the processor",
}


async def tools(settings: Settings, *, verbose: bool) -> AsyncIterator[Finding]:
    """Open all tools and try them.

    Args:
        settings: of the bot.
        verbose: whether each tool of an MCP server has a finding of its own, beside the server's.
    """
    wanted, last_words = tool_settings(settings), LastWords()
    sandboxes = SandboxPolicy(required=settings.sandbox_required)
    yield await _sandboxes(sandboxes)
    # Whoever only looks makes no folder, so it needs no name.
    workspaces = Workspaces(wanted.workspaces, str, sandboxes) if wanted.workspaces else None
    async with open_tools(
        wanted, sandboxes, last_words=last_words, workspaces=workspaces
    ) as registry:
        offer_own_tools(
            settings,
            registry,
            turn_of=only_listed,
            helpers_of=only_listed,
            reminders_of=only_listed,
            memory_of=only_listed,
            missed_by=only_listed,
            people=Nobody(),
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_SECONDS):
                await registry.settled()
        troubles = await probe(registry)
        if registry.offered_by(COMMANDS):
            try:
                kind, controllers = await try_jail()
            except WorkUnavailable as error:
                registry.withdraw(COMMANDS, str(error))
            else:
                walls = _commands(settings, kind)
                yield replace(walls, words=f"{walls.words} {_bounded_by(controllers)}")
        servers = {server.name for server in wanted.mcp_servers}
        for finding in _built_in(registry, troubles, servers):
            yield finding
        for server in wanted.mcp_servers:
            yield _server(server, registry, last_words.of(server.name))
            for tool in registry.offered_by(server.name) or () if verbose else ():
                yield _ready(tool)
        if not len(registry):
            yield warning("tools", "None: the model answers from what it knows.")


def _built_in(
    registry: Registry, troubles: Mapping[str, str], servers: set[str]
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


def _bounded_by(controllers: frozenset[Controller] | None) -> str:
    """Say what bounds all processes of a command together."""
    if controllers is None:
        return (
            "The bot looks at the memory and the processes of each command ten times a second: no"
            " control group was handed over to it (Delegate= in the unit)."
        )
    held = [name for controller, name in _BOUNDED.items() if controller in controllers]
    looked_at = [name for controller, name in _BOUNDED.items() if controller not in controllers]
    said = "Each command has a control group, which the kernel ends at once"
    said += f" and bounds in {', '.join(held)}." if held else "."
    return f"{said} The bot looks at: {', '.join(looked_at)}." if looked_at else said


def _commands(settings: Settings, kind: Kind) -> Finding:
    """Say what walls commands off, and whether those of admins reach the internet."""
    walls, asked = f"Walled off by {kind}", settings.tools.commands
    if not asked.network:
        return ok(COMMANDS, f"{walls}, without a network.")
    if not settings.commands_have_network:
        return warning(
            COMMANDS,
            f"{walls}, without a network: TOOLS__COMMANDS__NETWORK has no effect where the bot"
            " makes proofs.",
        )
    if not kind.has_network:
        return warning(
            COMMANDS,
            f"{walls}, without a network: TOOLS__COMMANDS__NETWORK has no effect there. Install"
            " bubblewrap and allow user namespaces.",
        )
    ports = " and ".join(map(str, sorted(PORTS)))
    words = f"{walls}. Those of admins reach public addresses on ports {ports}"
    if asked.approval == "never":
        return warning(
            COMMANDS,
            f"{words}, and nobody is asked (TOOLS__COMMANDS__APPROVAL=never): whatever the model"
            " reads may make it send files and conversations away.",
        )
    return ok(COMMANDS, f"{words}.")


def _ready(tool: Tool) -> Finding:
    if tool.consent is not None:
        return ok(tool.name, "Ready; TOOLS__COMMANDS__APPROVAL says which calls are asked about.")
    return ok(tool.name, "Ready; asks before each call." if tool.side_effects else "Ready.")


def _server(server: McpServer, registry: Registry, last_words: str) -> Finding:
    """Say what an MCP server offers, or why it offers nothing and which setting names it."""
    setting = f"MCP__SERVERS__{server.name.upper()}__"
    see = f"See {setting}{'COMMAND' if server.command else 'URL'}."
    said = f'The last line of its error output: "{last_words}" ' if last_words else ""
    offered = registry.offered_by(server.name)
    if offered is None:
        return warning(
            server.name,
            f"The MCP server has not answered so far. {said}A first start that downloads something"
            f" may take a while: run check again, or raise {setting}TIMEOUT_SECONDS. {see}",
        )
    if reason := registry.absent.get(server.name):
        return warning(server.name, f"{reason} {said}{see}")
    counted = _counted(offered)
    if remark := registry.remarks.get(server.name):
        return warning(server.name, f"{counted} {remark}")
    if not offered:
        return warning(server.name, f"{counted} {see}")
    return ok(server.name, counted)


def _counted(offered: tuple[Tool, ...]) -> str:
    asking = sum(tool.side_effects for tool in offered)
    if not offered:
        return "The MCP server offers no tools."
    return f"Ready. Tools: {len(offered)}; asking before each call: {asking or 'none'}."


async def _sandboxes(policy: SandboxPolicy) -> Finding:
    """Say which of the kernel's walls around sandboxes are missing, and what that means."""
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
