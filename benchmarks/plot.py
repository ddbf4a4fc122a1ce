"""Draw the last results: each figure as a share of its target.

`python -m benchmarks.plot`, with the packages of the soak.
"""

import json
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks.report import RESULTS

PICTURE: Final = RESULTS.with_suffix(".svg")
INCHES_WIDE: Final = 10
INCHES_A_BAR: Final = 0.32
MET, MISSED = "tab:green", "tab:red"


def draw(path: Path, results: dict[str, Any]) -> None:
    """Write the picture as an SVG; a figure without a target is not in it."""
    judged = [figure for figure in reversed(results["figures"]) if figure["met"] is not None]
    picture = Figure(figsize=(INCHES_WIDE, 1 + INCHES_A_BAR * len(judged)), layout="constrained")
    axes = picture.subplots()
    bars = axes.barh(
        [figure["measure"] for figure in judged],
        [_share(figure) for figure in judged],
        color=[MET if figure["met"] else MISSED for figure in judged],
    )
    axes.bar_label(bars, [f" {figure['value']:,.4g} {figure['unit']}" for figure in judged])
    axes.axvline(1, color="black", linestyle="--")
    axes.set_xscale("log")
    axes.margins(x=0.2, y=0.01)  # the figure of the longest bar stands right of it
    axes.set_xlabel("share of what the target allows; left of the line it is met")
    # Equal results give equal files. Its text is text; a wider font than ours has some room.
    with rc_context({"svg.hashsalt": "benchmarks", "svg.fonttype": "none"}):
        picture.savefig(
            path, format="svg", bbox_inches="tight", pad_inches=0.3, metadata={"Date": None}
        )


def _share(figure: dict[str, Any]) -> float:
    if figure["at_most"] is not None:
        return float(figure["value"] / figure["at_most"])
    return float(figure["at_least"] / figure["value"])


if __name__ == "__main__":
    draw(PICTURE, json.loads(RESULTS.read_text()))
    print(f"Drawn in {PICTURE}")
