"""The daemon, with a SIGHUP while it is loaded and another one when all of it has ended.

python -m tests.e2e.hung_up_bot run
"""

import atexit
import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

FIRST_OF_THE_REST = "structlog"
"""The slow import that `run` begins with."""


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


class HangUpOnce(MetaPathFinder):
    """Finds nothing."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None, /
    ) -> None:
        if name == FIRST_OF_THE_REST:
            sys.meta_path.remove(self)
            hang_up()


if __name__ == "__main__":
    atexit.register(hang_up)
    sys.meta_path.insert(0, HangUpOnce())
    from bot.cli.main import main

    sys.exit(main())
