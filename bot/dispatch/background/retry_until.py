"""Retry a request to the Signal side until a time limit."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from bot.backoff import Backoff
from bot.errors import SignalError, SignalRejected, SignalUntrusted

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
        return await self.backoff.retry(
            request,
            on=(SignalError,),
            final=(SignalRejected, SignalUntrusted),
            asked=lambda error: error.retry_after_seconds,
            within_seconds=self.seconds,
        )
