"""How late the event loop is, which delays everything that waits."""

import asyncio
from typing import Final

from bot.observability.metrics import LOOP_LAG_SECONDS

EVERY_SECONDS: Final = 1.0


async def measure_lag(every_seconds: float = EVERY_SECONDS) -> None:
    """Measure, until cancelled, how much too late the loop wakes this task."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + every_seconds
        await asyncio.sleep(every_seconds)
        LOOP_LAG_SECONDS.observe(max(0.0, loop.time() - due))
