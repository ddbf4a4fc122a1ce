"""A bound on what libraries do with documents that were made to keep them busy."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class TimeIsUp(BaseException):
    """The time is over. No Exception, as libraries catch those and go on."""


@contextmanager
def time_bound(seconds: float) -> Iterator[None]:
    """Interrupt the block after some time; only for a process with nothing else to do.

    Raises:
        TimeIsUp: it took longer.
    """
    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt(_: int, __: FrameType | None) -> NoReturn:
    raise TimeIsUp
