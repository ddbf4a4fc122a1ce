"""When a thousand people write at once and the model takes a second, who waits how long?"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

CHATS: Final = 1_000
QUICK_CHATS: Final = 20
BURSTS: Final = 3
DELAY_SECONDS: Final = 1.0
QUICK_DELAY_SECONDS: Final = 0.1


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the time until the last of them is answered, in the first burst and the slowest."""
    chats = QUICK_CHATS if quick else CHATS
    delay = QUICK_DELAY_SECONDS if quick else DELAY_SECONDS
    load = {"turns": chats, "chats": chats, "in_flight": chats, "pause_seconds": 0}
    async with sides(delay_seconds=delay) as world, running_bot(world.settings, world.folder):
        seconds = [(await world.signal.ask(**load))["seconds"] for _ in range(BURSTS)]
    return (
        Figure(f"{chats:,} chats at once, first burst", seconds[0], "s", at_most=3.5),
        Figure(f"{chats:,} chats at once, slowest of {BURSTS}", max(seconds), "s", at_most=3.5),
    )
