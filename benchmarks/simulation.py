"""How many histories of 60 virtual seconds does the simulator play in one second?"""

import asyncio
import re
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from typing import Final

from benchmarks.platform import ROOT, BenchmarkFailed
from benchmarks.report import Figure

SEEDS: Final = 600
QUICK_SEEDS: Final = 100
HISTORY_HOURS: Final = 60 / 3_600
_LAST_LINE: Final = re.compile(r"^\d+ seeds, ([\d.]+) virtual hours, (\d+) failures$")


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the rate over all cores, with the start of the program."""
    seeds = QUICK_SEEDS if quick else SEEDS
    command = (sys.executable, "-m", "tests.simulation", "--seeds", str(seeds))
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    printed, _ = await process.communicate()
    seconds = time.perf_counter() - began
    last = _LAST_LINE.match(printed.decode().splitlines()[-1])
    if last is None or last[2] != "0":
        raise BenchmarkFailed("a simulated history has failed")
    rate = float(last[1]) / HISTORY_HOURS / seconds
    return (Figure("simulated histories of 60 virtual seconds", rate, "a second", at_least=20.0),)
