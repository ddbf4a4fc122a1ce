"""How long does a person wait when the bot is idle and the model thinks for no time at all?

From the frame on the socket to the answer on the socket, one message at a time, every commit on
the disk.
"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

TURNS: Final = 1_000
QUICK_TURNS: Final = 10
CHATS: Final = 100
WARM_UP_TURNS: Final = 20
PAUSE_SECONDS: Final = 0.02
"""Long enough for the bot to be idle again when the next message comes."""


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the middle and the slow end of many turns, and the middle without pauses."""
    turns = QUICK_TURNS if quick else TURNS
    async with sides() as world, running_bot(world.settings, world.folder):
        load = {"chats": CHATS, "in_flight": 1, "pause_seconds": PAUSE_SECONDS}
        await world.signal.ask(turns=WARM_UP_TURNS, **load)
        result = await world.signal.ask(turns=turns, **load)
        busy = await world.signal.ask(turns=turns, **{**load, "pause_seconds": 0})
    return (
        Figure("plain turn, p50", result["p50_ms"], "ms", at_most=4),
        Figure("plain turn, p99", result["p99_ms"], "ms", at_most=12),
        Figure("plain turn, the next one at once, p50", busy["p50_ms"], "ms"),
    )
