"""Keeps a dead endpoint from costing every turn its time-outs."""

import time
from collections.abc import Callable
from typing import Final

from bot.backoff import Backoff

PAUSE: Final = Backoff(first_seconds=15.0, longest_seconds=300.0)
"""How long an endpoint is left alone after it has failed, once, twice, ..."""


class Breaker:
    """Knows whether an endpoint is to be left alone.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._alone_until = clock()

    @property
    def is_open(self) -> bool:
        """Whether it is to be left alone, if there is another one to ask."""
        return self._clock() < self._alone_until

    def failed(self) -> None:
        """Take note that it gave no answer."""
        self._failures += 1
        self._alone_until = self._clock() + PAUSE.seconds(self._failures)

    def answered(self) -> None:
        """Take note that it is there."""
        self._failures = 0
        self._alone_until = self._clock()
