"""Rewrites the database file after deletions, because SQLite leaves copies of moved rows.

`secure_delete` overwrites deleted rows. But SQLite also moves rows between pages, and the old page
keeps a copy in its unused part. Nothing overwrites that copy when the row is deleted. A rewritten
file (`VACUUM`) has no such copies.

A rewrite takes about 10 ms and 1 MB of memory per megabyte and delays every write. So one rewrite
serves all deletions of a while, and another one runs when the store is closed.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from conversation_store import connections
from conversation_store.errors import StoreRefused

MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger files are not rewritten: that would take too much memory and time."""

FIRST_SECONDS: Final = 10.0
"""Minimum time between a deletion and the rewrite."""

MAX_SHARE: Final = 0.01
"""Share of time that rewrites may take."""


class Leftovers:
    """The copies that SQLite may have left in a database file.

    Args:
        writer: the connection that writes; a rewrite occupies it.
        may_be_there: an earlier process did not close the store.
    """

    def __init__(self, writer: Any, *, may_be_there: bool) -> None:
        self._writer = writer
        self._may_be_there = asyncio.Event()
        if may_be_there:
            self.may_be_there()

    def may_be_there(self) -> None:
        """Rewrite the file in a while, because something was deleted."""
        self._may_be_there.set()

    async def remove_in_time(self) -> None:
        """Rewrite the file after deletions, until cancelled."""
        pause = FIRST_SECONDS
        while True:
            await self._may_be_there.wait()
            await asyncio.sleep(pause)
            began = time.monotonic()
            await self.remove()
            pause = max(FIRST_SECONDS, (time.monotonic() - began) / MAX_SHARE)

    async def remove(self) -> None:
        """Rewrite the file if anything was deleted. If the disk refuses, it stays due."""
        if not self._may_be_there.is_set():
            return
        self._may_be_there.clear()
        done = False
        try:
            with suppress(StoreRefused):
                await self._writer.async_run(connections.rewrite, self._writer, MAX_BYTES)
                done = True
        finally:
            if not done:
                self._may_be_there.set()
