"""What does an answer of 300 tokens cost that comes as models write, token by token?"""

from collections.abc import Sequence
from typing import Final

from benchmarks.platform import running_bot, sides
from benchmarks.report import Figure

TOKENS: Final = 300
TOKEN_SECONDS: Final = 0.005
ANSWERS: Final = 100
QUICK_ANSWERS: Final = 4
IN_FLIGHT: Final = 4
MAX_CPU_MS: Final = 25
MAX_LATE_MS: Final = 100


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the processor time of one such turn, and how much later than its last token it is."""
    answers = QUICK_ANSWERS if quick else ANSWERS
    load = {"chats": IN_FLIGHT, "in_flight": IN_FLIGHT, "pause_seconds": 0}
    spent = []
    for tokens, seconds in ((0, 0.0), (TOKENS, TOKEN_SECONDS)):
        async with (
            sides(tokens=tokens, token_seconds=seconds) as world,
            running_bot(world.settings, world.folder) as bot,
        ):
            await world.signal.ask(turns=IN_FLIGHT, **load)
            before = bot.cpu_seconds
            result = await world.signal.ask(turns=answers, **load)
            spent.append((bot.cpu_seconds - before) / answers)
    cpu = (spent[1] - spent[0]) * 1_000
    late = result["p50_ms"] - TOKENS * TOKEN_SECONDS * 1_000
    return (
        Figure(f"CPU of {TOKENS} streamed tokens", cpu, "ms", at_most=MAX_CPU_MS),
        Figure(
            f"answer of {TOKENS} tokens after the last one, p50", late, "ms", at_most=MAX_LATE_MS
        ),
    )
