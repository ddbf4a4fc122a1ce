"""When to ask the endpoint again: backoff, and what `Retry-After` asks for (RFC 9110)."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Self

from bot.backoff import Backoff


@dataclass(frozen=True, slots=True)
class RetryPolicy(Backoff):
    """How long and how often a request is tried again.

    Attributes:
        bound_seconds: no attempt begins later than this after the first one.
        unreached_seconds: the same after the first failure, at an endpoint that has never
            answered: its address may be wrong, or its server is just starting.
        silent_seconds: of failures, until whoever waits for the answer is told.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    bound_seconds: float = 150.0
    unreached_seconds: float = 5.0
    silent_seconds: float = 20.0

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        """Return the seconds to wait after so many failures, never a whole crowd's same number."""
        if retry_after_seconds is None:
            return self.seconds(failures)
        return retry_after_seconds + random.uniform(0, self.first_seconds)  # noqa: S311  # no secret


class LongWait:
    """Tells once that a wait takes long; says nothing after the block.

    Args:
        seconds: from `begin`.
        tell: is called then.
    """

    def __init__(self, seconds: float, tell: Callable[[], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Begin to wait, unless that has begun."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._tell)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for; None when it says nothing.

    Args:
        value: the header: seconds, or an HTTP date.
        now: the present, with a time zone.
    """
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
