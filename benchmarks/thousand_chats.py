"""How long do people wait if a thousand write at once, or ten thousand?

The model takes a second.
"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import Sides, running_bot, sides
from benchmarks.report import Figure

CHATS: Final = 1_000
MANY_CHATS: Final = 10_000
QUICK_CHATS: Final = 20
BURSTS: Final = 3
DELAY_SECONDS: Final = 1.0
QUICK_DELAY_SECONDS: Final = 0.1


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the time until the last of them is answered, in the first burst and the slowest."""
    chats, many = (QUICK_CHATS, 2 * QUICK_CHATS) if quick else (CHATS, MANY_CHATS)
    delay = QUICK_DELAY_SECONDS if quick else DELAY_SECONDS
    async with sides(delay_seconds=delay) as world, running_bot(world.settings, world.folder):
        seconds = [await _burst(world, chats) for _ in range(BURSTS)]
        most = await _burst(world, many)
    return (
        Figure(f"{chats:,} chats at once, first burst", seconds[0], "s", at_most=3.5),
        Figure(f"{chats:,} chats at once, slowest of {BURSTS}", max(seconds), "s", at_most=3.5),
        Figure(f"{many:,} chats at once", most, "s", at_most=18),
    )


async def _burst(world: Sides, chats: int) -> float:
    result = await world.signal.ask(turns=chats, chats=chats, in_flight=chats, pause_seconds=0)
    seconds: float = result["seconds"]
    return seconds
