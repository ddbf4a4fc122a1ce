"""The hasty daemon, whose machine's clock is ahead by what a file in its folder says (seconds).

python -m tests.e2e.jumpy_bot run
"""

import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from bot.cli.main import main
from bot.dispatch.background.steady_clock import SteadyClock
from bot.dispatch.outgoing import doubts
from bot.wiring import composition
from tests.e2e.hasty_bot import PROOF_SECONDS

AHEAD: Final = "ahead"


def wall() -> float:
    return time.time() + float(Path(AHEAD).read_text())


if __name__ == "__main__":
    doubts.PROOF_SECONDS = PROOF_SECONDS  # type: ignore[misc]
    composition.SteadyClock = partial(SteadyClock, wall=wall)  # type: ignore[assignment,attr-defined]
    sys.exit(main())
