"""Ask all questions, or some: `python -m benchmarks [--quick] [plain_turn ...]`."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol

from benchmarks import (
    commands,
    history,
    hogs,
    loop_stall,
    memory,
    plain_turn,
    proof,
    report,
    reuse,
    simulation,
    slow_disk,
    start,
    streamed_answer,
    sustained,
    thousand_chats,
    tool_turn,
    way,
)
from benchmarks.platform import BenchmarkFailed


class Measure(Protocol):
    """A question: one module each."""

    def __call__(self, *, quick: bool) -> Awaitable[Sequence[report.Figure]]:
        """Return the measured figures."""
        ...


MEASURES: Final[dict[str, Measure]] = {
    "plain_turn": plain_turn.measure,
    "tool_turn": tool_turn.measure,
    "slow_disk": slow_disk.measure,
    "streamed_answer": streamed_answer.measure,
    "thousand_chats": thousand_chats.measure,
    "sustained": sustained.measure,
    "history": history.measure,
    "loop_stall": loop_stall.measure,
    "commands": commands.measure,
    "hogs": hogs.measure,
    "memory": memory.measure,
    "start": start.measure,
    "proof": proof.measure,
    "way": way.measure,
    "reuse": reuse.measure,
    "simulation": simulation.measure,
}


async def run(names: Sequence[str], *, quick: bool) -> list[report.Figure]:
    """Ask the questions one after the other."""
    figures: list[report.Figure] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures += await MEASURES[name](quick=quick)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MEASURE", help=", ".join(MEASURES))
    parser.add_argument(
        "--quick", action="store_true", help="small counts: shows that it works, measures little"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(MEASURES):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    facts = report.machine()
    print(f"Interpreter built with PGO: {'yes' if facts['pgo'] else 'no'}", file=sys.stderr)
    try:
        figures = asyncio.run(run(chosen.names or list(MEASURES), quick=chosen.quick))
    except BenchmarkFailed as failure:
        sys.exit(f"benchmarks: {failure}")
    print(report.table(figures))
    if not chosen.names and not chosen.quick:
        report.write(report.RESULTS, facts, figures)
        print(f"Written to {report.RESULTS}")


if __name__ == "__main__":
    main()
