"""How long from the command to a bot that takes messages, with either Signal transport?"""

import asyncio
import statistics
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.platform import ROOT, folder_on_disk, helper, running_bot, settings, sides
from benchmarks.report import Figure

STARTS: Final = 5
QUICK_STARTS: Final = 1


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the median of some starts, and the memory of the REST transport."""
    starts = QUICK_STARTS if quick else STARTS
    async with sides() as world:
        seconds, _ = await _start(world.settings, world.folder, starts)
    async with (
        folder_on_disk() as folder,
        helper("benchmarks.rest_side") as signal,
        helper("benchmarks.model_side") as model,
    ):
        found = settings(signal.ready["url"], signal.ready["number"], model, folder)
        rest_seconds, rest_mb = await _start(found, folder, starts)
    return (
        Figure("start to ready", seconds, "s", at_most=1.0),
        Figure("start to ready, REST transport", rest_seconds, "s"),
        Figure("--version", await _version_seconds(starts), "s", at_most=0.3),
        Figure("resident memory, idle, REST transport", rest_mb, "MB"),
    )


async def _version_seconds(times: int) -> float:
    """Middle of the seconds that a command takes that needs next to nothing."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        command = (sys.executable, "-m", "bot", "--version")
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=DEVNULL)
        await process.wait()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


async def _start(bot_settings: Mapping[str, str], folder: Path, starts: int) -> tuple[float, float]:
    """Middle of the seconds until it is ready, and of the megabytes then."""
    seconds, megabytes = [], []
    for _ in range(starts):
        async with running_bot(bot_settings, folder) as bot:
            seconds.append(bot.start_seconds)
            megabytes.append(bot.resident_mb)
    return statistics.median(seconds), statistics.median(megabytes)
