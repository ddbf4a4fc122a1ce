"""How long does a person wait if the bot is idle and the model answers at once?

Measured between the frame and the answer on the socket, one message at a time, with every commit
on the disk.
"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import helper, running_bot, sides
from benchmarks.report import Figure

TURNS: Final = 1_000
QUICK_TURNS: Final = 10
CHATS: Final = 100
WARM_UP_TURNS: Final = 20
PAUSE_SECONDS: Final = 0.02
"""Long enough for the bot to be idle again when the next message comes."""


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the middle and the slow end of many turns, and figures to compare them with."""
    turns = QUICK_TURNS if quick else TURNS
    load = {"chats": CHATS, "in_flight": 1, "pause_seconds": PAUSE_SECONDS}
    async with sides() as world:
        addresses = (world.settings["SIGNAL__URL"], world.settings["LLM__BASE_URL"])
        async with helper("benchmarks.wire_side", *addresses):
            wire = await world.signal.ask(turns=turns, **load)
    async with sides() as world, running_bot(world.settings, world.folder):
        await world.signal.ask(turns=WARM_UP_TURNS, **load)
        result = await world.signal.ask(turns=turns, **load)
        busy = await world.signal.ask(turns=turns, **{**load, "pause_seconds": 0})
    return (
        Figure("plain turn, p50", result["p50_ms"], "ms", at_most=4),
        Figure("plain turn, p99", result["p99_ms"], "ms", at_most=12),
        Figure("plain turn, the next one at once, p50", busy["p50_ms"], "ms"),
        Figure("the wire without a bot, p50", wire["p50_ms"], "ms"),
    )
