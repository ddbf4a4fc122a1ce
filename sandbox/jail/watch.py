"""Watches the processes and the folder of a program, for what no limit of the kernel's bounds.

The kernel bounds each process (memory, files, time); a program may start many. Where nothing
better is delegated, somebody has to look: often enough that little gets past, rarely enough that
looking costs little. Source: proc(5).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from sandbox.jail.program import Bounds, Stopped

FIRST_LOOK_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 0.1
LOOKING_SHARE: Final = 0.1
"""Of the time, at most, goes into looking into a large folder."""
ALSO_THERE: Final = 2
"""Processes of the jail itself."""
_PROC: Final = Path("/proc")
_KILO: Final = 1_024


LookAtFolder = Callable[[], Awaitable[Stopped | None]]
"""Says whether a folder has outgrown a bound; asked again and again while a program runs."""


def processes_of(first: int) -> Iterator[int]:
    """Yield a process and all that it and they have started."""
    waiting = [first]
    while waiting:
        process = waiting.pop()
        try:
            for thread in (_PROC / str(process) / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except OSError:  # it has ended
            continue
        yield process


def _memory_and_threads(process: int) -> tuple[int, int]:
    """Return the bytes that a process has in memory and no file backs, and its threads."""
    memory = threads = 0
    try:
        with (_PROC / str(process) / "status").open() as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name in ("RssAnon", "RssShmem"):
                    memory += int(value.split()[0]) * _KILO
                elif name == "Threads":
                    threads = int(value)
    except OSError:
        return 0, 0
    return memory, threads


async def watch(first: int, bounds: Bounds, look_at_folder: LookAtFolder) -> Stopped:
    """Return when a program takes more than it may, and what it is.

    Args:
        first: its first process; others are those that it has started.
        bounds: of the program.
        look_at_folder: looks at what it has written.
    """
    looked, pause = 0.0, FIRST_LOOK_SECONDS
    while True:
        await asyncio.sleep(max(pause, looked / LOOKING_SHARE))
        pause = min(2 * pause, LOOK_SECONDS)
        if reason := _exceeded(first, bounds):
            return reason
        begun = time.monotonic()
        if reason := await look_at_folder():
            return reason
        looked = time.monotonic() - begun


def _exceeded(first: int, bounds: Bounds) -> Stopped | None:
    memory = processes = 0
    for process in processes_of(first):
        its_memory, its_threads = _memory_and_threads(process)
        memory += its_memory
        processes += its_threads
        if processes > bounds.processes + ALSO_THERE:
            return Stopped.PROCESSES
    return Stopped.MEMORY if memory > bounds.memory_bytes else None
