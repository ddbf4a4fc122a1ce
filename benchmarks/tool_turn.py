"""How long does a person wait for an answer that takes one calculation?

Two requests to the model, a progress message, and a call in the calculator's own process.
"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

TURNS: Final = 500
QUICK_TURNS: Final = 10
CHATS: Final = 100
WARM_UP_TURNS: Final = 5
PAUSE_SECONDS: Final = 0.02


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the median and the slow end of many turns."""
    turns = QUICK_TURNS if quick else TURNS
    async with sides(calculate=True) as world, running_bot(world.settings, world.folder):
        load = {"chats": CHATS, "in_flight": 1, "pause_seconds": PAUSE_SECONDS}
        await world.signal.ask(turns=WARM_UP_TURNS, **load)
        result = await world.signal.ask(turns=turns, **load)
    return (
        Figure("turn with one calculation, p50", result["p50_ms"], "ms", at_most=8),
        Figure("turn with one calculation, p99", result["p99_ms"], "ms"),
    )
