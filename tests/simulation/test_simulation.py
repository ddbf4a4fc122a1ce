"""The simulator itself: its seeds, its replay, and the histories that belong to the full tests."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 900.0
LAST_LINE: Final = re.compile(r"^(\d+) seeds, [\d.]+ virtual hours, (\d+) failures$")


def simulated(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run the simulator as a developer does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_two_runs_of_the_same_seeds_give_the_same_events() -> None:
    first = simulated("--seeds", "4,15,23", "--trace", hash_seed="1")
    second = simulated("--seeds", "4,15,23", "--trace", hash_seed="2")
    assert events(first.stdout) == events(second.stdout)
    assert len(set(re.findall(r"^seed \d+: (\w+)$", first.stdout, re.MULTILINE))) == 3


def events(printed: str) -> list[str]:
    """Return the trace without the log, whose lines have the time of the real clock."""
    return [line for line in printed.splitlines() if not line.startswith("{")]


@pytest.mark.full
def test_three_hundred_histories_keep_all_promises() -> None:
    done = simulated("--seeds", "300")
    last = LAST_LINE.match(done.stdout.splitlines()[-1])
    assert last is not None, done.stdout + done.stderr
    assert last.groups() == ("300", "0"), done.stdout
