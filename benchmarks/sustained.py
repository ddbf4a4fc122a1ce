"""How many turns a second does the bot keep up for a while, with a model that takes no time?"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

TURNS: Final = 10_000
QUICK_TURNS: Final = 100
CHATS: Final = 1_000
IN_FLIGHT: Final = 100
WARM_UP_TURNS: Final = 200


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the rate, and how long a person waits at that rate."""
    turns = QUICK_TURNS if quick else TURNS
    load = {"chats": CHATS, "in_flight": IN_FLIGHT, "pause_seconds": 0}
    async with sides() as world, running_bot(world.settings, world.folder):
        await world.signal.ask(turns=WARM_UP_TURNS, **load)
        result = await world.signal.ask(turns=turns, **load)
    return (
        Figure("sustained turns", result["turns"] / result["seconds"], "/s", at_least=400),
        Figure(f"sustained, {IN_FLIGHT} in flight, p50", result["p50_ms"], "ms"),
        Figure(f"sustained, {IN_FLIGHT} in flight, p99", result["p99_ms"], "ms"),
    )
