"""What time it is, as far as that can be known: the machine's clock may be wrong, and be set.

A battery is empty, a virtual machine goes on after a week, somebody answers NTP with nonsense:
the wall clock jumps by years. Messages must not disappear by that, nor stay for years. So
timers, retention, stored times and the age of proofs go by a `SteadyClock`. It follows the wall
clock while that moves as time does, which the kernel counts from its boot, sleep included
(CLOCK_BOOTTIME). When the wall clock jumps, it goes on as before, until another clock says that
the jump was right: that of Signal's server, which comes with every message. At a start, the
newest message of the store takes the place of what it knew before.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

log = structlog.get_logger()

TOLERANCE_SECONDS: Final = 300.0
"""A smaller step is followed at once: no timer and no retention is that exact. And so far apart
two clocks that agree may be, of which one had to wait in a queue."""

MAX_PAUSE_SECONDS: Final = 30 * 86_400.0
"""A start so long after the newest message may as well be a clock that is wrong."""

DOUBT_SECONDS: Final = 86_400.0
"""Where nobody has written for so long that could tell, the later of two times counts: what people
were promised to be gone has to go."""

SINCE_BOOT: Final = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)
"""Seconds since the kernel's start, sleep included; only Linux has such a clock."""


@dataclass(slots=True)
class _Doubt:
    """The wall clock is elsewhere, and it is not known who is right.

    Attributes:
        seconds: by which it is ahead; negative: behind.
        since: when that began, in seconds since boot.
        settled: it was found out that the wall clock is wrong.
    """

    seconds: float
    since: float
    settled: bool = False


class SteadyClock:
    """Keeps the time although the wall clock jumps. The store asks it from a thread of its own.

    Args:
        wall: seconds since 1970, as the machine says.
        elapsed: seconds that only grow, also while the machine sleeps.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = SINCE_BOOT,
    ) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._zero = wall() - elapsed()
        self._doubt: _Doubt | None = None
        self._lock = threading.RLock()

    def start_from(self, newest: float | None) -> None:
        """Take into account when the newest message was received, in seconds since 1970.

        It cannot be earlier than that, and if it is far later, somebody else has to say so.
        """
        wall = self._wall()
        if newest is None or -MAX_PAUSE_SECONDS <= newest - wall <= TOLERANCE_SECONDS:
            return
        self._zero = newest - self._elapsed()
        self.time()

    def time(self) -> float:
        """Return the time in seconds since 1970."""
        with self._lock:
            return self._look()

    def _look(self) -> float:
        wall, elapsed = self._wall(), self._elapsed()
        ahead = wall - (self._zero + elapsed)
        if abs(ahead) <= TOLERANCE_SECONDS:
            self._follow(wall, elapsed)
        elif self._doubt is None or abs(ahead - self._doubt.seconds) > TOLERANCE_SECONDS:
            log.warning("clock.jumped", seconds=round(ahead))
            self._doubt = _Doubt(ahead, elapsed)
        elif not self._doubt.settled and elapsed - self._doubt.since >= DOUBT_SECONDS:
            self._believe_the_later(wall, elapsed, self._doubt)
        return self._zero + elapsed

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return int(self.time() * 1_000)

    def past(self) -> float:
        """Return up to when time has passed for certain: what cannot be undone goes by this."""
        with self._lock:
            now = self._look()
            in_doubt = self._doubt is not None and not self._doubt.settled
            return min(now, self._wall()) if in_doubt else now

    def heard(self, told: float) -> bool:
        """Take note of the time that came with a message, in seconds since 1970.

        Returns:
            whether the time is an earlier one by that: what was stored came from the future.
        """
        with self._lock:
            return self._compare(told)

    def _compare(self, told: float) -> bool:
        before = self._look()
        if self._doubt is None:
            return False
        wall = self._wall()
        if abs(wall - told) <= TOLERANCE_SECONDS:
            self._follow(wall, self._elapsed())
            return wall < before
        # Where both others say that it is later, it is.
        known = max(before, sorted((before, told, wall))[1])
        self._zero += known - before
        self._doubt.seconds = wall - known
        self._doubt.settled = abs(known - told) < abs(wall - told)
        return False

    def _follow(self, wall: float, elapsed: float) -> None:
        self._zero = wall - elapsed
        if self._doubt is not None:
            log.info("clock.trusted_again", seconds=round(self._doubt.seconds))
            self._doubt = None

    def _believe_the_later(self, wall: float, elapsed: float, doubt: _Doubt) -> None:
        if doubt.seconds > 0:
            self._follow(wall, elapsed)
        else:
            doubt.settled = True
