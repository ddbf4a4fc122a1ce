"""How much memory does the bot take, idle and with a thousand chats in flight?

The bot's own process, without and with an MCP server, whose client is loaded only then. The
calculator's process is listed separately, because it starts with the first calculation.
"""

import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

CHATS: Final = 1_000
QUICK_CHATS: Final = 20
DELAY_SECONDS: Final = 1.0
QUICK_DELAY_SECONDS: Final = 0.1


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return resident memory; with the chats in flight it is the peak of the process's life."""
    chats = QUICK_CHATS if quick else CHATS
    delay = QUICK_DELAY_SECONDS if quick else DELAY_SECONDS
    load = {"turns": chats, "chats": chats, "in_flight": chats, "pause_seconds": 0}
    async with (
        sides(delay_seconds=delay) as world,
        running_bot(world.settings, world.folder) as bot,
    ):
        idle = bot.resident_mb
        await world.signal.ask(**load)
        peak, after = bot.peak_mb, bot.resident_mb
    return (
        Figure("resident memory, idle", idle, "MB", at_most=80),
        Figure(f"resident memory, {chats:,} chats in flight", peak, "MB", at_most=160),
        Figure("resident memory, idle again", after, "MB"),
        Figure("resident memory, with an MCP server", await _with_mcp_server_mb(), "MB"),
        Figure("resident memory, calculator's process", await _calculator_mb(), "MB"),
    )


async def _with_mcp_server_mb() -> float:
    async with sides() as world:
        server = {"MCP__SERVERS__TIME__COMMAND": f"{sys.executable} -m mcp_server_time"}
        async with running_bot({**world.settings, **server}, world.folder) as bot:
            # A first turn waits for the tools that are being started.
            await world.signal.ask(turns=2, chats=1, in_flight=1, pause_seconds=0)
            return bot.resident_mb


async def _calculator_mb() -> float:
    async with (
        sides(calculate=True) as world,
        running_bot(world.settings, world.folder) as bot,
    ):
        await world.signal.ask(turns=2, chats=1, in_flight=1, pause_seconds=0)
        return bot.children_mb
