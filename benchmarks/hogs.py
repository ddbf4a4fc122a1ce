"""Do others notice a chat whose commands take all that they can get?

One chat runs a command again and again, in each kind of jail. Other chats have plain turns, one at
a time. Their 90th percentile is compared with that of an idle bot just before. The median of
several comparisons counts, because other programs of the machine disturb some of them.
"""

import shutil
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.platform import Sides, running_bot, sides
from benchmarks.report import Figure

ROUNDS: Final = 3
TURNS: Final = 60
QUICK_TURNS: Final = 10
CHATS: Final = 100
WARM_UP_TURNS: Final = 20
PAUSE_SECONDS: Final = 0.02
MOST_TIMES: Final = 2.0

HOGS: Final[Mapping[str, str]] = {
    "a flood of processes": "for i in $(seq 1000); do (while :; do :; done) & done; wait",
    "60 busy processes": "for i in $(seq 60); do (while :; do :; done) & done; wait",
    "60 busy sessions": """for i in $(seq 60); do
        setsid sh -c 'while :; do :; done' & done; wait; sleep 9""",
    "much memory": """for i in 1 2 3 4; do
        python3 -c 'import time; x = b"x" * (300 << 20); time.sleep(9)' & done; wait""",
    "endless output": "yes & yes >&2",
    "many small files": """mkdir -p d; cd d; while :; do seq 4500 | xargs touch; rm -rf *; done""",
    "a full disk": "while :; do head -c 150000000 /dev/zero > large; rm large; done",
}
"""Even without bounds, each needs less memory and disk than a machine of 2 GB has."""

JAILS: Final[Mapping[str, Sequence[str]]] = {
    "bubblewrap": (),
    # As in a container: no further user namespaces.
    "Landlock": (
        *("bwrap", "--die-with-parent", "--unshare-user", "--disable-userns"),
        *("--dev-bind", "/", "/"),
    ),
}


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return by how much each hog slows others down."""
    if shutil.which("bwrap") is None:
        return ()
    figures: list[Figure] = []
    for jail, within in JAILS.items():
        async with sides(obey=True) as world:
            figures += await _slowed(world, jail, within, quick=quick)
    return figures


async def _slowed(world: Sides, jail: str, within: Sequence[str], *, quick: bool) -> list[Figure]:
    turns, rounds = (QUICK_TURNS, 1) if quick else (TURNS, ROUNDS)
    settings = {
        **world.settings,
        "TOOLS__WORKSPACE__FOR": "everyone",
        "TOOLS__WORKSPACE__PATH": str(world.folder / "workspaces"),
        "TOOLS__COMMANDS__APPROVAL": "never",
    }
    load = {"chats": CHATS, "in_flight": 1, "pause_seconds": PAUSE_SECONDS}
    async with running_bot(settings, world.folder, within=within):
        await world.signal.ask(turns=WARM_UP_TURNS, beside="RUN true", **load)
        figures = []
        for hog, command in HOGS.items():
            times = []
            for _ in range(rounds):
                idle = await world.signal.ask(turns=turns, **load)
                found = await world.signal.ask(turns=turns, beside=f"RUN {command}", **load)
                times.append(found["p90_ms"] / idle["p90_ms"])
            middle = statistics.median(times)
            figures.append(Figure(f"beside {hog} ({jail})", middle, "times", at_most=MOST_TIMES))
        figures.append(Figure(f"without, p90 ({jail})", idle["p90_ms"], "ms"))
    return figures
