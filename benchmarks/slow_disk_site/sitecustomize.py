"""Makes every sync of SQLite take as long as on a slow disk: Python imports this at its start.

The delay is in SQLite's own file system layer, so the bot runs as it is. It is given in
milliseconds, by the environment.
"""

import os
import time
from typing import Any

import apsw

SECONDS = float(os.environ["SLOW_DISK_MS"]) / 1_000


class SlowFile(apsw.VFSFile):
    """A file whose syncs take their time."""

    def xSync(self, flags: int) -> None:  # noqa: N802 -- apsw's name
        time.sleep(SECONDS)
        super().xSync(flags)


class SlowDisk(apsw.VFS):
    """SQLite's usual way to files, with slow syncs."""

    def __init__(self, base: str) -> None:
        self._base = base
        super().__init__("slow", base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> SlowFile:  # noqa: N802 -- apsw's name
        return SlowFile(self._base, name, flags)


SLOW_DISK = SlowDisk(apsw.vfs_names()[0])
