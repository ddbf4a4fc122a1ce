"""How long does a person wait with the settings that people have, and a model of some seconds?"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

TURNS: Final = 5
QUICK_TURNS: Final = 2
PAUSE_SECONDS: Final = 0.1
DELAYS: Final = ((1.0, 1.6), (3.0, 3.1))
"""Seconds that the model takes, and after which the answer is to be there."""


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the time from one message to its answer, for each model."""
    turns = QUICK_TURNS if quick else TURNS
    figures = []
    for delay, most in DELAYS:
        async with sides(delay_seconds=delay) as world:
            settings = {**world.settings}
            del settings["BOT__SETTLE_SECONDS"]
            async with running_bot(settings, world.folder):
                result = await world.signal.ask(
                    turns=turns, chats=turns, in_flight=1, pause_seconds=PAUSE_SECONDS
                )
        name = f"one message, default settings, a model of {delay:g} s"
        figures.append(Figure(name, result["p50_ms"] / 1_000, "s", at_most=most))
    return figures
