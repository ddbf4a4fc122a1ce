"""Clocks and entropy of the simulation.

`tests/simulation/__init__.py` imports this module before any module of the project: the project
keeps `time.time` as a default argument, so the clocks have to be replaced first. Outside of a
simulated loop, all of them are the real ones.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tests.simulation.loop import SimulatedLoop


def _replaced(
    real: Callable[[], Any], seconds: Callable[[SimulatedLoop], float], scale: int
) -> Any:
    def clock() -> Any:
        loop = asyncio._get_running_loop()
        if not isinstance(loop, SimulatedLoop):
            return real()
        return int(seconds(loop) * scale) if scale > 1 else seconds(loop)

    return clock


def _up(loop: SimulatedLoop) -> float:
    return 1_000.0 + loop.time()


@contextmanager
def entropy_of(rng: Random) -> Iterator[None]:
    """Draw the bytes of `os.urandom` from a seed inside the block."""
    _entropy.append(rng)
    try:
        yield
    finally:
        _entropy.pop()


_entropy: list[Random] = []
_real_entropy = os.urandom


def _urandom(size: int) -> bytes:
    return _entropy[-1].randbytes(size) if _entropy else _real_entropy(size)


time.time = _replaced(time.time, SimulatedLoop.wall, 1)
time.time_ns = _replaced(time.time_ns, SimulatedLoop.wall, 10**9)
time.monotonic = _replaced(time.monotonic, _up, 1)
time.monotonic_ns = _replaced(time.monotonic_ns, _up, 10**9)
time.perf_counter = _replaced(time.perf_counter, _up, 1)
os.urandom = random._urandom = _urandom  # type: ignore[attr-defined]
