"""Does it grow? A straight line through the samples at rest of one life of the bot.

The line is Theil and Sen's: the median of the slopes between all pairs of samples, which a few
odd samples do not bend. The growth is its rise over the observed time.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from benchmarks.soak.samples import Sample

MIN_SAMPLES: Final = 5
"""At rest and warm; with fewer a life tells nothing about growth."""

WARM_UP_SHARE: Final = 0.2
MAX_WARM_UP_SECONDS: Final = 180.0
"""Start of a life that does not count: caches fill, modules are loaded, connections are opened."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that must not grow.

    Attributes:
        name: for people.
        unit: for people.
        value: of a sample; None where the sample has none.
        most: that it may grow by, over what was looked at.
        drained: only samples of drained pools count.
    """

    name: str
    unit: str
    value: Callable[[Sample], float | None]
    most: float
    drained: bool = False


MAX_DESCRIPTORS: Final = 4.0

MEASURES: Final = (
    Measure("memory", "MB", lambda sample: sample.resident_mb, most=8.0),
    Measure("descriptors", "", lambda sample: sample.descriptors, MAX_DESCRIPTORS, drained=True),
    Measure("tasks", "", lambda sample: sample.tasks, most=4.0),
    Measure("threads", "", lambda sample: sample.threads, most=1.0),
    Measure("child processes", "", lambda sample: sample.children, most=1.0),
)


@dataclass(frozen=True, slots=True)
class Growth:
    """The course of a measure in a life.

    Attributes:
        measure: which.
        unit: its own.
        life: number of the process.
        minutes: that were looked at.
        samples: at rest in them.
        first: middle value of the first third of them.
        last: of the last third.
        rise: of the line.
        most: that is allowed.
    """

    measure: str
    unit: str
    life: int
    minutes: float
    samples: int
    first: float
    last: float
    rise: float
    most: float

    @property
    def is_fine(self) -> bool:
        """Whether it does not grow by more than is allowed."""
        return self.rise <= self.most


def growth(samples: Iterable[Sample]) -> list[Growth]:
    """Return the course of each measure in each sufficiently long life."""
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    found = (_growth(measure, life) for life in lives.values() for measure in MEASURES)
    return [one for one in found if one is not None]


def _growth(measure: Measure, life: Sequence[Sample]) -> Growth | None:
    seconds = life[-1].at - life[0].at
    warm_at = life[0].at + min(seconds * WARM_UP_SHARE, MAX_WARM_UP_SECONDS)
    points = [
        (sample.at, value)
        for sample in life
        if (sample.drained if measure.drained else sample.rest)
        and sample.at >= warm_at
        and (value := measure.value(sample)) is not None
    ]
    if len(points) < MIN_SAMPLES:
        return None
    values = [value for _, value in points]
    third = max(1, len(values) // 3)
    span = points[-1][0] - points[0][0]
    return Growth(
        measure=measure.name,
        unit=measure.unit,
        life=life[0].life,
        minutes=span / 60,
        samples=len(points),
        first=statistics.median(values[:third]),
        last=statistics.median(values[-third:]),
        rise=_slope(points) * span,
        most=measure.most,
    )


def _slope(points: Sequence[tuple[float, float]]) -> float:
    return statistics.median(
        (later - earlier) / (then - before)
        for (before, earlier), (then, later) in combinations(points, 2)
    )
