"""The measured figures: a table for people, a file for programs."""

import json
import os
import platform
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.platform import DISK

RESULTS: Final = Path(__file__).with_name("results.json")
DISK_WRITES: Final = 50


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, and its target if it has one.

    Attributes:
        measure: what was measured.
        value: in `unit`.
        unit: such as ms; empty for a ratio.
        at_most: target.
        at_least: target.
    """

    measure: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Return whether the target is reached; None without a target."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None


def machine() -> dict[str, object]:
    """Return the facts about the machine that the numbers depend on."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pgo": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "platform": platform.platform(),
        "load_average": round(os.getloadavg()[0], 2),
        "disk_commit_ms": round(_disk_commit_ms(), 3),
    }


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a table."""
    rows = [("measure", "result", "target", "met?")]
    rows += [(f.measure, f"{f.value:,.2f} {f.unit}", _target(f), _verdict(f)) for f in figures]
    first, *others = (max(len(row[column]) for row in rows) for column in range(4))
    lines = [
        "  ".join((row[0].ljust(first), *map(str.rjust, row[1:], others))).rstrip() for row in rows
    ]
    return "\n".join((lines[0], "-" * len(lines[0]), *lines[1:]))


def write(path: Path, facts: dict[str, object], figures: Sequence[Figure]) -> None:
    """Write the figures with the machine that they were measured on."""
    results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": facts,
        "figures": [
            {**asdict(figure), "value": round(figure.value, 3), "met": figure.met}
            for figure in figures
        ],
    }
    path.write_text(json.dumps(results, indent=2) + "\n")


def _target(figure: Figure) -> str:
    if figure.at_most is not None:
        return f"<= {figure.at_most:,g} {figure.unit}".rstrip()
    if figure.at_least is not None:
        return f">= {figure.at_least:,g} {figure.unit}".rstrip()
    return ""


def _verdict(figure: Figure) -> str:
    return {True: "yes", False: "NO", None: ""}[figure.met]


def _disk_commit_ms() -> float:
    """Median time to append a page and have it on the disk."""
    times = []
    with tempfile.TemporaryFile(dir=DISK) as file:
        for _ in range(DISK_WRITES):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000
