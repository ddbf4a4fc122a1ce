"""Asking the Signal side again where it did not answer, within a bound."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from bot.errors import SignalError, SignalRateLimited, SignalRejected, SignalUntrusted
from bot.messaging.backoff import Backoff

T = TypeVar("T")

RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=30.0)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a question is asked.

    Attributes:
        seconds: no new attempt begins after so long.
        backoff: between two attempts.
    """

    seconds: float
    backoff: Backoff = RETRY

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a question that may be asked twice.

        Raises:
            SignalError: it was refused, or was not answered in time.
        """
        clock = asyncio.get_running_loop().time
        ends_at = clock() + self.seconds
        attempt = 0
        while True:
            try:
                return await question()
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
