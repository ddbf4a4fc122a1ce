"""Watches the processes and the folder of a program, for bounds that the kernel does not enforce.

The kernel bounds each process (memory, files, time), but a program may start many. A look at 64
processes takes 5 ms, so a thread does it. Source: proc(5).
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

from tools.sandbox.jail.program import Bounds, Stopped

FIRST_LOOK_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 0.1
LOOKING_SHARE: Final = 0.1
"""Looking into a large folder takes at most this share of the time."""
RARELY_SECONDS: Final = 2.0
ALSO_THERE: Final = 3
"""Processes of the jail itself."""
SPARE_BYTES: Final = 2**20
"""For nameless files of the jail itself, such as the script."""
LOST_BYTES: Final = 2**30
"""A disk may lose this much more than a program may write, because others write there, too."""
LEFT_SHARE: Final = 0.1
"""Share of the space free at the start that is left to others."""
_PROC: Final = "/proc"
_FACTS_BYTES: Final = 65_536
"""More than the kernel says of a process in one file."""
_KILO: Final = 1_024
_BLOCK_BYTES: Final = 512

LookAtFolder = Callable[[], Awaitable[Stopped | None]]
"""Returns the bound that a folder has outgrown, if any; called repeatedly while a program runs."""


def processes_of(first: int) -> Iterator[int]:
    """Yield a process and all its descendants."""
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
        with suppress(OSError):  # it has ended
            _, _, _, session, *_ = _facts(process)
            if int(session) == first:
                yield process


def is_running(process: int) -> bool:
    """Return whether a process has not stopped or ended."""
    try:
        return _facts(process)[0] not in b"TtZX"
    except OSError:
        return False


def _facts(process: int) -> list[bytes]:
    """Return the fields after the name in /proc/PID/stat: state, parent, group, session."""
    return _read(f"{_PROC}/{process}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _FACTS_BYTES)
    finally:
        os.close(descriptor)


async def watch_processes(first: int, folder: Path, bounds: Bounds, threads: Executor) -> Stopped:
    """Return the bound that a program's first process and its descendants exceed, once they do.

    The program writes into the folder.
    """
    loop = asyncio.get_running_loop()
    room = await loop.run_in_executor(threads, _free_bytes, folder)
    enough = max(room - bounds.file_bytes - LOST_BYTES, int(room * LEFT_SHARE))
    pause = FIRST_LOOK_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LOOK_SECONDS)
        if reason := await loop.run_in_executor(threads, _exceeded, first, bounds):
            return reason
        # A nameless file that is only mapped, or in a socket, takes room unseen.
        if await loop.run_in_executor(threads, _free_bytes, folder) < enough:
            return "room"


async def watch_folder(look_at_folder: LookAtFolder) -> Stopped:
    """Return the bound that the folder of a program exceeds, once it does."""
    looked = 0.0
    while True:
        await asyncio.sleep(min(max(LOOK_SECONDS, looked / LOOKING_SHARE), RARELY_SECONDS))
        begun = time.monotonic()
        if reason := await look_at_folder():
            return reason
        looked = time.monotonic() - begun


def _exceeded(first: int, bounds: Bounds) -> Stopped | None:
    memory = processes = 0
    nameless: dict[tuple[int, int], int] = {}
    for process in processes_of(first):
        with suppress(OSError):  # it has ended
            its_memory, its_threads = _memory_and_threads(process)
            memory += its_memory
            processes += its_threads
            nameless.update(_nameless_files(process))
        if processes > bounds.processes + ALSO_THERE:
            return "processes"
    if memory > bounds.memory_bytes:
        return "memory"
    return "disk" if sum(nameless.values()) > bounds.file_bytes + SPARE_BYTES else None


def _memory_and_threads(process: int) -> tuple[int, int]:
    """Return a process's bytes in memory that belong to no file, and its threads."""
    memory = threads = 0
    for line in _read(f"{_PROC}/{process}/status").splitlines():
        name, _, value = line.partition(b":")
        if name in (b"RssAnon", b"RssShmem", b"VmSwap", b"VmPTE"):
            memory += int(value.split()[0]) * _KILO
        elif name == b"Threads":
            threads = int(value)
    return memory, threads


def _free_bytes(folder: Path) -> int:
    """Return the free bytes of a folder's disk; very many if it cannot be asked."""
    try:
        disk = os.statvfs(folder)
    except OSError:  # the folder is gone
        return sys.maxsize
    return disk.f_bavail * disk.f_frsize


def _nameless_files(process: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the open files of a process that no folder names, with the bytes that they take."""
    with os.scandir(f"{_PROC}/{process}/fd") as entries:
        descriptors = list(entries)
    for descriptor in descriptors:
        try:
            status = descriptor.stat()
        except OSError:  # it is closed, which hides no other one
            continue
        if stat.S_ISREG(status.st_mode) and not status.st_nlink:
            yield (status.st_dev, status.st_ino), status.st_blocks * _BLOCK_BYTES
