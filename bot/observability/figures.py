"""Figures about this process, and figures in words."""

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROCESS: Final = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Resident memory, and open files and connections with their soft limit."""

    memory_bytes: int
    descriptors: int
    descriptor_limit: int


def process_figures() -> ProcessFigures | None:
    """Return this process's figures (proc(5)); None on systems without /proc."""
    try:
        pages = int((PROCESS / "statm").read_text(encoding="ascii").split()[1])
        descriptors = len(list((PROCESS / "fd").iterdir()))
    except OSError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFigures(pages * resource.getpagesize(), descriptors, limit)


def size(count: int) -> str:
    """Return a number of bytes in binary units: `12 MiB`."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: `3 d 4 h`, `12 s`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    shown = [f"{amount} {unit}" for amount, unit in units if amount]
    return " ".join(shown[:2]) or "0 s"
