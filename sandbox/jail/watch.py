"""Watches the processes and the folder of a program, for what no limit of the kernel's bounds.

The kernel bounds each process (memory, files, time); a program may start many. What no control
group bounds, somebody has to look at: often enough that little gets past, rarely enough that
looking costs little. A look at 64 processes takes 5 ms, so it is done on a thread, and the event
loop stays with those who talk. Source: proc(5).
"""

import asyncio
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Final

from sandbox.jail.control_groups import ALSO_THERE, ControlGroup, Controller
from sandbox.jail.program import Bounds, Stopped

FIRST_LOOK_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 0.1
LOOKING_SHARE: Final = 0.1
"""Of the time, at most, goes into looking into a large folder."""
RARELY_SECONDS: Final = 2.0
SPARE_BYTES: Final = 2**20
"""Of nameless files, which the jail has itself, such as the script."""
LOST_BYTES: Final = 2**30
"""A disk may shrink by so much more than a program may write: others write there, too."""
LEFT_SHARE: Final = 0.1
"""Of what is free when a program begins, so much is left to others."""
_PROC: Final = "/proc"
_FACTS_BYTES: Final = 65_536
"""More than the kernel says of a process in one file."""
_KILO: Final = 1_024
_SESSION: Final = 3
"""Place of the session among what follows the name in /proc/PID/stat."""
_BLOCK_BYTES: Final = 512


LookAtFolder = Callable[[], Awaitable[Stopped | None]]
"""Says whether a folder has outgrown a bound; asked again and again while a program runs."""


def processes_of(first: int) -> Iterator[int]:
    """Yield a process and all that it and they have started."""
    waiting = [first]
    while waiting:
        process = waiting.pop()
        try:
            with os.scandir(f"{_PROC}/{process}/task") as entries:
                threads = list(entries)
        except OSError:  # it has ended
            continue
        yield process
        for thread in threads:
            with suppress(OSError):  # it has ended, which hides no other one
                waiting += map(int, _read(f"{thread.path}/children").split())


def processes_in_session(first: int) -> Iterator[int]:
    """Yield the processes of a session, by the process that began it, which may have ended."""
    with os.scandir(_PROC) as entries:
        processes = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for process in processes:
        try:
            facts = _read(f"{_PROC}/{process}/stat").rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        if int(facts[_SESSION]) == first:
            yield process


def is_running(process: int) -> bool:
    """Whether a process is neither stopped nor ended."""
    try:
        return _read(f"{_PROC}/{process}/stat").rpartition(b")")[2].split()[0] not in b"TtZX"
    except OSError:
        return False


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _FACTS_BYTES)
    finally:
        os.close(descriptor)


def _memory_and_threads(process: int) -> tuple[int, int]:
    """Return the bytes that a process has in memory and no file backs, and its threads."""
    memory = threads = 0
    try:
        lines = _read(f"{_PROC}/{process}/status").splitlines()
    except OSError:
        return 0, 0
    for line in lines:
        name, _, value = line.partition(b":")
        if name in (b"RssAnon", b"RssShmem", b"VmSwap", b"VmPTE"):
            memory += int(value.split()[0]) * _KILO
        elif name == b"Threads":
            threads = int(value)
    return memory, threads


async def watch(
    first: int,
    folder: Path,
    bounds: Bounds,
    look_at_folder: LookAtFolder,
    *,
    threads: Executor,
    group: ControlGroup | None,
) -> Stopped:
    """Return when a program takes more than it may, and what it is.

    Args:
        first: its first process; others are those that it has started.
        folder: where it writes.
        bounds: of the program.
        look_at_folder: looks at what it has written.
        threads: on which processes are looked at.
        group: in which it runs; None: there are no groups.
    """
    looks = [
        asyncio.ensure_future(_watch_processes(first, folder, bounds, threads, group)),
        asyncio.ensure_future(_watch_folder(look_at_folder)),
    ]
    try:
        done, _ = await asyncio.wait(looks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for look in looks:
            look.cancel()


async def _watch_processes(
    first: int, folder: Path, bounds: Bounds, threads: Executor, group: ControlGroup | None
) -> Stopped:
    loop = asyncio.get_running_loop()
    room = await loop.run_in_executor(threads, _free_bytes, folder)
    enough = max(room - bounds.file_bytes - LOST_BYTES, int(room * LEFT_SHARE))
    pause = FIRST_LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)
        if reason := await loop.run_in_executor(threads, _exceeded, first, bounds, group):
            return reason
        # Nobody sees a nameless file that is only mapped, or on its way through a socket.
        if await loop.run_in_executor(threads, _free_bytes, folder) < enough:
            return Stopped.ROOM


async def _watch_folder(look_at_folder: LookAtFolder) -> Stopped:
    looked = 0.0
    while True:
        await asyncio.sleep(min(max(LOOK_SECONDS, looked / LOOKING_SHARE), RARELY_SECONDS))
        begun = time.monotonic()
        if reason := await look_at_folder():
            return reason
        looked = time.monotonic() - begun


def _exceeded(first: int, bounds: Bounds, group: ControlGroup | None) -> Stopped | None:
    if group is not None and (reason := group.exceeded()):
        return reason
    held = group is not None and {Controller.MEMORY, Controller.PIDS} <= group.controllers
    memory = processes = 0
    nameless: dict[tuple[int, int], int] = {}
    for process in processes_of(first) if group is None else group.processes():
        its_memory, its_threads = (0, 0) if held else _memory_and_threads(process)
        memory += its_memory
        processes += its_threads
        if processes > bounds.processes + ALSO_THERE:
            return Stopped.PROCESSES
        nameless.update(_nameless_files(process))
    if memory > bounds.memory_bytes:
        return Stopped.MEMORY
    return Stopped.DISK if sum(nameless.values()) > bounds.file_bytes + SPARE_BYTES else None


def _free_bytes(folder: Path) -> int:
    """Return how much room a folder's disk has; where it cannot be told, there is enough."""
    try:
        disk = os.statvfs(folder)
    except OSError:  # the folder is gone
        return sys.maxsize
    return disk.f_bavail * disk.f_frsize


def _nameless_files(process: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the files that a process has open and that no folder names, with what they take."""
    try:
        with os.scandir(f"{_PROC}/{process}/fd") as entries:
            descriptors = list(entries)
    except OSError:  # it has ended
        return
    for descriptor in descriptors:
        try:
            status = descriptor.stat()
        except OSError:  # it is closed, which hides no other one
            continue
        if stat.S_ISREG(status.st_mode) and not status.st_nlink:
            yield (status.st_dev, status.st_ino), status.st_blocks * _BLOCK_BYTES
