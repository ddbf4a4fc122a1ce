"""Waits for an event with a time limit, and waits between attempts, with the retry loop."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event for at most some seconds; return whether it is set."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()
    return event.is_set()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from the first to the longest, each randomly shortened.

    Randomness keeps many clients of one server from coming back at the same moment.

    Attributes:
        first_seconds: the wait before the first new attempt.
        longest_seconds: no wait is longer.
    """

    first_seconds: float
    longest_seconds: float

    def seconds(self, failures: int) -> float:
        """Return the wait after one or more failures in a row."""
        # Bound the exponent, so that many failures cannot overflow.
        doublings = min(failures - 1, 32)
        full = min(self.longest_seconds, self.first_seconds * 2**doublings)
        return random.uniform(full / 2, full)  # noqa: S311  # a wait is no secret

    async def retry(
        self,
        request: Callable[[], Awaitable[T]],
        *,
        on: tuple[type[E], ...],
        final: tuple[type[Exception], ...] = (),
        asked: Callable[[E], float | None] | None = None,
        within_seconds: float = math.inf,
    ) -> T:
        """Return the result of a request that is safe to repeat.

        Args:
            request: called until it succeeds.
            on: errors to retry after; all others are raised.
            final: subclasses of `on` that are raised anyway.
            asked: returns the shortest wait that an error asks for, in seconds, or None.
            within_seconds: no attempt begins later than this after the first; then the last error
                is raised.
        """
        clock = asyncio.get_running_loop().time
        ends_at = clock() + within_seconds
        failures = 0
        while True:
            try:
                return await request()
            except final:
                raise
            except on as error:
                failures += 1
                pause = max(self.seconds(failures), (asked and asked(error)) or 0.0)
                if clock() + pause > ends_at:
                    raise
            await asyncio.sleep(pause)
