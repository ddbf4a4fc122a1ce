"""Retry a request to the Signal side until a time limit."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from bot.backoff import Backoff
from bot.errors import SignalError, SignalRateLimited, SignalRejected, SignalUntrusted

T = TypeVar("T")

RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=30.0)


@dataclass(frozen=True, slots=True)
class RetryUntil:
    """How long to go on trying.

    Attributes:
        seconds: no attempt begins later than this after the first.
        backoff: the pause between two attempts.
    """

    seconds: float
    backoff: Backoff = RETRY

    async def call(self, request: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a request that is safe to repeat.

        Raises:
            SignalError: the request was refused, or failed until the time was over.
        """
        clock = asyncio.get_running_loop().time
        ends_at = clock() + self.seconds
        attempt = 0
        while True:
            try:
                return await request()
            except (SignalRejected, SignalUntrusted):
                raise
            except SignalError as error:
                attempt += 1
                pause = self._pause(attempt, error)
                if clock() + pause > ends_at:
                    raise
            await asyncio.sleep(pause)

    def _pause(self, attempt: int, error: SignalError) -> float:
        if isinstance(error, SignalRateLimited) and error.retry_after_seconds is not None:
            return error.retry_after_seconds
        return self.backoff.seconds(attempt)
