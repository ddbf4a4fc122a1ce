"""Play histories and judge them: `python -m tests.simulation [--seeds 300 | --seeds 7,19]`."""

import argparse
import gc
import hashlib
import os
import re
import shutil
import sys
import tempfile
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bot.observability import logs
from tests.simulation.disk import Disk
from tests.simulation.history import History, history
from tests.simulation.judge import copies, verdict
from tests.simulation.loop import SimulatedLoop, simulation
from tests.simulation.machine import seeded
from tests.simulation.world import World

SHM: Final = Path("/dev/shm")
CHUNK: Final = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a history ended.

    Attributes:
        wrong: the broken rules.
        seconds: virtual.
        copies: visible copies that no phone confirmed.
        digest: of the trace.
    """

    seed: int
    wrong: tuple[str, ...]
    seconds: float
    copies: int
    digest: str
    trace: tuple[str, ...]


def play(plan: History, *, keeps_trace: bool = False) -> Outcome:
    """Play a history in this process."""
    where = SHM if os.access(SHM, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=where))
    log: list[str] = []
    disk = Disk(plan.seed)
    try:
        with seeded(plan.seed, log), disk.mounted(), simulation(plan.seed) as loop:
            world = World(loop, disk, plan, folder, log)
            wrong = _played(loop, world)
            seconds, unconfirmed = loop.time(), copies(world)
        if not wrong:
            wrong = verdict(world, [*_faults(loop), *_left(folder)])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    trace = (*world.evidence.trace, *(log if keeps_trace else ()))
    digest = hashlib.sha256("\n".join(world.evidence.trace).encode()).hexdigest()[:16]
    return Outcome(
        plan.seed, tuple(wrong), seconds, unconfirmed, digest, trace if keeps_trace else ()
    )


def _played(loop: SimulatedLoop, world: World) -> list[str]:
    try:
        loop.run_until_complete(world.run())
    except Exception as error:
        lines = traceback.format_exception(error)
        return [f"the world broke: {''.join(lines[-6:])}"]
    return []


def _faults(loop: SimulatedLoop) -> list[str]:
    found = []
    for fault in loop.faults:
        task = fault.get("task") or fault.get("future")
        owner = getattr(task, "owner", "")
        found.append(f"asyncio reports ({owner}): {fault['message']} {fault.get('exception')!r}")
    return found


def _left(folder: Path) -> list[str]:
    known = {"store.db", "store.db.lock", "signal.sock"}
    return [
        f"left over: {p.name}" for p in folder.rglob("*") if p.is_file() and p.name not in known
    ]


def shortest(plan: History) -> History:
    """Drop events as long as the history still breaks one of the same rules."""
    broken = _rules(play(plan))
    size = max(1, len(plan.events) // 2)
    while True:
        start = 0
        while start < len(plan.events):
            events = plan.events[:start] + plan.events[start + size :]
            shorter = replace(plan, events=events)
            if broken & _rules(play(shorter)):
                plan = shorter
            else:
                start += size
        if size == 1:
            return plan
        size = max(1, size // 2)


def _rules(outcome: Outcome) -> set[str]:
    """Return the broken rules without names and numbers."""
    return {re.sub(r"mk\d+z|P\d|\d+|'.*'", "", line) for line in outcome.wrong}


def _play_seeds(seeds: list[int]) -> list[Outcome]:
    logs.configure(level="info", log_format="json")
    outcomes = [play(history(seed)) for seed in seeds]
    gc.collect()  # while a history is played, the collector rests
    return outcomes


def main(arguments: list[str]) -> int:
    """Play histories; print each failure, and a last line with the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="300", help="how many, or `7,19,` for these")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--trace", action="store_true", help="print what happens, and the log")
    parser.add_argument(
        "--until-failure", action="store_true", help="stop at the first failure, as it is"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args(arguments)
    seeds = _seeds(wanted.seeds, wanted.first)
    if wanted.trace:
        return _print_traces(seeds)
    logs.configure(level="info", log_format="json")
    played, failures, virtual, unconfirmed = 0, 0, 0.0, 0
    size = 1 if wanted.until_failure else CHUNK
    chunks = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    with ProcessPoolExecutor(wanted.jobs) as pool:
        for outcomes in pool.map(_play_seeds, chunks):
            for one in outcomes:
                played += 1
                virtual += one.seconds
                unconfirmed += one.copies
                if one.wrong:
                    failures += 1
                    _explain(one, shortens=failures == 1 and not wanted.until_failure)
            if failures and wanted.until_failure:
                pool.shutdown(cancel_futures=True)
                break
    print(f"{unconfirmed} visible copies that no phone has confirmed")
    print(f"{played} seeds, {virtual / 3600:.1f} virtual hours, {failures} failures")
    return 1 if failures else 0


def _seeds(wanted: str, first: int) -> list[int]:
    if "," in wanted:
        return [int(seed) for seed in wanted.split(",") if seed]
    return list(range(first, first + int(wanted)))


def _print_traces(seeds: list[int]) -> int:
    logs.configure(level="debug", log_format="json")
    failures = 0
    for seed in seeds:
        outcome = play(history(seed), keeps_trace=True)
        failures += bool(outcome.wrong)
        print(*outcome.trace, *outcome.wrong, f"seed {seed}: {outcome.digest}", sep="\n")
    return 1 if failures else 0


def _explain(outcome: Outcome, *, shortens: bool) -> None:
    """Print a failure, perhaps with the shortest history that still fails."""
    print(f"seed {outcome.seed}: {'; '.join(outcome.wrong)[:600]}", flush=True)
    if shortens:
        print("shortest history that still fails:")
        for event in shortest(history(outcome.seed)).events:
            print(f"  {event}")
        print(f"replay: make simulate SEEDS={outcome.seed}, TRACE=1", flush=True)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
