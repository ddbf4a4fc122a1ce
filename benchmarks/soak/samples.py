"""Samples of the resources of the bot, every few seconds, and sometimes at rest."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MB: Final = 1e6
HTTP_SECONDS: Final = 2.0
LINE: Final = re.compile(r"^(?:signal_tee_bot_)?(\w+)(?:{[^}]*})? ([0-9.e+-]+)$", re.MULTILINE)

TASKS: Final = "tasks"
DESCRIPTORS: Final = "process_open_fds"
QUEUES: Final = (
    "running_turns",
    "waiting_jobs",
    "signal_queue_length",
    "llm_requests_waiting",
    "unanswered_messages",
    "unsent_messages",
)
"""Gauges of `/metrics` that are lengths of queues."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The bot at a moment.

    Attributes:
        at: seconds since the soak began.
        life: number of the process.
        rest: no person waits, and no fault is present.
        drained: it has been so for longer than an idle connection is kept.
        resident_mb: memory of the process.
        threads: of it.
        children: processes that it has started.
        store_mb: the database file.
        log_mb: its write-ahead log.
        gauges: of `/metrics`: tasks, descriptors and queues; empty when it did not answer.
    """

    at: float
    life: int
    rest: bool
    drained: bool
    resident_mb: float
    threads: int
    children: int
    store_mb: float
    log_mb: float
    gauges: Mapping[str, float]

    @property
    def tasks(self) -> float | None:
        """Tasks of the event loop; None when the bot did not say."""
        return self.gauges.get(TASKS)

    @property
    def descriptors(self) -> float | None:
        """Files and connections that it has open; None when the bot did not say."""
        return self.gauges.get(DESCRIPTORS)


@dataclass(frozen=True, slots=True)
class Process:
    """A life of the bot, as a sample looks at it."""

    life: int
    pid: int


async def sample(
    process: Process, *, began: float, store: Path, port: int, rest: bool, drained: bool
) -> Sample | None:
    """Look at a process; None when it has just ended.

    Args:
        process: which.
        began: when the soak did, in monotonic seconds.
        store: the database file.
        port: of `/metrics`.
        rest: see Sample.
        drained: see Sample.
    """
    gauges = await _gauges(port)
    proc = Path(f"/proc/{process.pid}")
    try:
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
        return Sample(
            at=time.monotonic() - began,
            life=process.life,
            rest=rest,
            drained=drained,
            resident_mb=int(status["VmRSS"].split()[0]) * 1024 / MB,
            threads=int(status["Threads"]),
            children=sum(
                len((task / "children").read_text().split()) for task in (proc / "task").iterdir()
            ),
            store_mb=_size_mb(store),
            log_mb=_size_mb(store.with_name(store.name + "-wal")),
            gauges=gauges,
        )
    except (OSError, KeyError):  # without memory it is a zombie
        return None


def _size_mb(file: Path) -> float:
    try:
        return file.stat().st_size / MB
    except FileNotFoundError:
        return 0.0


async def _gauges(port: int) -> dict[str, float]:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(HTTP_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(
                    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
                )
                page = (await reader.read()).decode()
            finally:
                writer.close()
        found: defaultdict[str, float] = defaultdict(float)
        for name, value in LINE.findall(page):  # a queue may have several lanes
            found[name] += float(value)
        return {name: found[name] for name in (TASKS, DESCRIPTORS, *QUEUES) if name in found}
    return {}
