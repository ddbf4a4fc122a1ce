"""The faults of a soak and their times: random, but equal for equal seeds."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

LAST_LIFE_SHARE: Final = 0.5
"""Share of the last life in the whole time. Nothing kills the bot in it, so that growth shows."""

CALM_AT_THE_END_SECONDS: Final = 30.0
LIFE_SECONDS: Final = (40.0, 110.0)
PAUSE_SECONDS: Final = (5.0, 15.0)
FIRST_PAUSE_SECONDS: Final = 8.0
DOWN_SECONDS: Final = (0.5, 3.0)
"""Between a death of the bot and its next start."""


class Fault(StrEnum):
    """A fault of a running bot."""

    CONNECTION_LOST = "connection lost"
    SIGNAL_AWAY = "signal-cli away"
    SIGNAL_SILENT = "signal-cli silent"
    ANSWERS_LOST = "answers to sends lost"
    MODEL_DOWN = "model down"
    MODEL_SLOW = "model slow"
    MODEL_CUTS = "model cuts streams"
    MODEL_BUSY = "model busy"
    DISK_FULL = "disk full"
    ALL_AT_ONCE = "disk, signal-cli, model"
    RELOAD = "reload"


class End(StrEnum):
    """How a life of the bot ends."""

    KILLED = "kill -9"
    STOPPED = "stopped in order"


SECONDS: Final = {
    Fault.CONNECTION_LOST: (0.0, 0.0),
    Fault.SIGNAL_AWAY: (2.0, 12.0),
    Fault.SIGNAL_SILENT: (4.0, 12.0),
    Fault.ANSWERS_LOST: (1.0, 3.0),
    Fault.MODEL_DOWN: (3.0, 12.0),
    Fault.MODEL_SLOW: (5.0, 15.0),
    Fault.MODEL_CUTS: (2.0, 6.0),
    Fault.MODEL_BUSY: (3.0, 10.0),
    Fault.DISK_FULL: (3.0, 12.0),
    Fault.ALL_AT_ONCE: (4.0, 10.0),
    Fault.RELOAD: (0.0, 0.0),
}
"""How long each lasts: from, to."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault: so long after the one before, for so long."""

    fault: Fault
    pause_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Life:
    """A life of the bot.

    Attributes:
        seconds: how long it is.
        end: of it.
        down_seconds: until the next one.
    """

    seconds: float
    end: End
    down_seconds: float


def lives(seconds: float, random: Random) -> Iterator[Life]:
    """Divide the time into lives; the last one has its share to itself."""
    left = seconds * (1 - LAST_LIFE_SHARE)
    # A short soak has short lives, so that it has more than one as well.
    shorter = min(1.0, left / (3 * LIFE_SECONDS[1]))
    while left > 0:
        life = min(left, random.uniform(*LIFE_SECONDS) * shorter)
        left -= life
        end = random.choice((End.KILLED, End.KILLED, End.STOPPED))
        yield Life(life, end, random.uniform(*DOWN_SECONDS))
    yield Life(seconds * LAST_LIFE_SHARE, End.STOPPED, 0.0)


def faults(random: Random) -> Iterator[Planned]:
    """Return one fault after the other, without an end; each comes before one comes again."""
    while True:
        for fault in random.sample(list(Fault), len(Fault)):
            pause = random.uniform(*PAUSE_SECONDS)
            yield Planned(fault, pause, random.uniform(*SECONDS[fault]))
