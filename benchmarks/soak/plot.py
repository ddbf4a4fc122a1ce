"""Draw a soak: memory, descriptors, tasks, queues, the store, and the faults."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from benchmarks.soak.faults import End
from benchmarks.soak.samples import QUEUES, Sample
from benchmarks.soak.stage import Mark

INCHES: Final = (14, 15)
DOTS_PER_INCH: Final = 110
AXES: Final = 5
BESIDE: Final[dict[str, Any]] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
"""Place where a legend hides nothing."""

ENDS: Final = {str(End.KILLED): ("black", "--"), str(End.STOPPED): ("grey", ":")}


def draw(path: Path, samples: Sequence[Sample], marks: Sequence[Mark], *, title: str) -> None:
    """Write the picture as a PNG."""
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots(AXES, sharex=True)
    memory, descriptors, tasks, queues, store = axes
    _memory(memory, samples)
    _lines(descriptors, samples, {"open descriptors": lambda one: one.descriptors})
    _lines(
        tasks,
        samples,
        {
            "tasks": lambda one: one.tasks,
            "threads": lambda one: one.threads,
            "child processes": lambda one: one.children,
        },
    )
    _lines(queues, samples, {name.replace("_", " "): _gauge(name) for name in QUEUES})
    _lines(
        store,
        samples,
        {"database, MB": lambda one: one.store_mb, "its log, MB": lambda one: one.log_mb},
    )
    colours = _colours(marks)
    shown = {mark.kind: _shade(axes, mark, colours) for mark in marks}
    store.set_xlabel("minutes")
    figure.suptitle(title)
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=4, title="what went wrong"
    )
    figure.savefig(path, dpi=DOTS_PER_INCH)


def _memory(axis: Any, samples: Sequence[Sample]) -> None:
    _lines(axis, samples, {"resident memory, MB": lambda one: one.resident_mb})
    resting = [one for one in samples if one.rest]
    minutes, megabytes = [one.at / 60 for one in resting], [one.resident_mb for one in resting]
    axis.plot(minutes, megabytes, "o", color="tab:red", markersize=4, label="the same, at rest")
    axis.legend(**BESIDE)


def _lines(axis: Any, samples: Sequence[Sample], curves: dict[str, Any]) -> None:
    """Draw curves that break between two processes."""
    for number, (name, value) in enumerate(curves.items()):
        for at, life in enumerate(sorted({one.life for one in samples})):
            points = [(one.at / 60, value(one)) for one in samples if one.life == life]
            known = [(minute, y) for minute, y in points if y is not None]
            axis.plot(
                [minute for minute, _ in known],
                [y for _, y in known],
                color=f"C{number}",
                linewidth=1.2,
                label=name if at == 0 else None,
            )
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(**BESIDE)


def _gauge(name: str) -> Any:
    return lambda one: one.gauges.get(name)


def _colours(marks: Iterable[Mark]) -> dict[str, str]:
    """Give each of the ten kinds of faults its own colour."""
    kinds = sorted({mark.kind for mark in marks} - ENDS.keys())
    return {kind: f"C{number}" for number, kind in enumerate(kinds)}


def _shade(axes: Iterable[Any], mark: Mark, colours: dict[str, str]) -> Any:
    """Show the time of a fault, and return its entry in the legend."""
    begin, end = mark.at / 60, max(mark.until, mark.at + 1) / 60
    if mark.kind in ENDS:
        colour, style = ENDS[mark.kind]
        lines = [axis.axvline(begin, color=colour, linestyle=style) for axis in axes]
        return lines[0]
    spans = [axis.axvspan(begin, end, color=colours[mark.kind], alpha=0.25) for axis in axes]
    return spans[0]
