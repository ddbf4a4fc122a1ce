"""How long does a person wait if a sync of the disk takes 2 ms, as on many rented servers?"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

SYNC_MS: Final = 2
TURNS: Final = 500
QUICK_TURNS: Final = 10
CHATS: Final = 100
WARM_UP_TURNS: Final = 10
PAUSE_SECONDS: Final = 0.02


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the median and the slow end of plain turns and of turns with one calculation."""
    turns = QUICK_TURNS if quick else TURNS
    load = {"chats": CHATS, "in_flight": 1, "pause_seconds": PAUSE_SECONDS}
    results = []
    for calculate in (False, True):
        async with (
            sides(calculate=calculate) as world,
            running_bot(world.settings, world.folder, sync_ms=SYNC_MS),
        ):
            await world.signal.ask(turns=WARM_UP_TURNS, **load)
            results.append(await world.signal.ask(turns=turns, **load))
    plain, calculation = results
    disk = f"on a disk of {SYNC_MS} ms"
    return (
        Figure(f"plain turn {disk}, p50", plain["p50_ms"], "ms"),
        Figure(f"plain turn {disk}, p99", plain["p99_ms"], "ms", at_most=15),
        Figure(f"turn with one calculation {disk}, p50", calculation["p50_ms"], "ms"),
    )
