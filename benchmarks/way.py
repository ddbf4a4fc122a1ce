"""How long is the way of a message through the code: files, functions, switches between files?

Turns in a chat that has had some. The bot's process is recorded, without its helper processes.
Calls of an idle bot (a look at the clock, at paired people) do not count.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

WARM_UP_TURNS: Final = 5
QUICK_WARM_UP_TURNS: Final = 2
TURNS: Final = 2
IDLE_SECONDS: Final = 6.0
"""Longer than the pauses between the regular checks of an idle bot."""
SETTLED_SECONDS: Final = 1.0
"""After an answer, until its receipts and marks are stored."""

MOST_FILES: Final = {"plain turn": 45, "turn with one calculation": 55}


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the length of the way, and print the files in their order."""
    warm_up_turns = QUICK_WARM_UP_TURNS if quick else WARM_UP_TURNS
    figures = []
    for name, calculate in (("plain turn", False), ("turn with one calculation", True)):
        calls = await _way(warm_up_turns, calculate=calculate)
        files = [file for file, _, _ in (call.partition("\t") for call in calls)]
        in_order = list(dict.fromkeys(files))
        switches = sum(one != other for one, other in itertools.pairwise(files))
        print(f"{name}: {', '.join(in_order)}", file=sys.stderr)
        figures += [
            Figure(f"{name}: files", len(in_order), "", at_most=MOST_FILES[name]),
            Figure(f"{name}: functions", len(set(calls)), ""),
            Figure(f"{name}: switches between files", switches / TURNS, ""),
        ]
    return figures


async def _way(warm_up_turns: int, *, calculate: bool) -> list[str]:
    """Return the calls of the turns in their order."""
    turns, idle = [
        await _recorded(warm_up_turns, recorded, calculate=calculate) for recorded in (TURNS, 0)
    ]
    only_idle = {call.partition("\t")[0] for call in idle} - {
        call.partition("\t")[0] for call in turns if call not in idle
    }
    return [call for call in turns if call.partition("\t")[0] not in only_idle]


async def _recorded(warm_up_turns: int, turns: int, *, calculate: bool) -> list[str]:
    """Return the calls during some turns, or during a while without any, in their order."""
    load = {"chats": 1, "in_flight": 1, "pause_seconds": 0.0}
    async with sides(calculate=calculate) as world:
        record = world.folder / "way"
        async with running_bot(world.settings, world.folder, record_way=record) as bot:
            await world.signal.ask(turns=warm_up_turns, **load)
            await asyncio.sleep(SETTLED_SECONDS)
            os.kill(bot.pid, signal.SIGUSR1)
            if turns:
                await world.signal.ask(turns=turns, **load)
            await asyncio.sleep(SETTLED_SECONDS if turns else IDLE_SECONDS)
            os.kill(bot.pid, signal.SIGUSR1)
        return record.read_text().splitlines()
