"""Rewrites the database file after deletions, because SQLite leaves copies of rows that it moved.

`secure_delete` overwrites what is deleted. But when SQLite moves rows to another page, because one
is full or nearly empty, the page that they leave keeps them in its unused part; and when they are
deleted later, nothing overwrites that copy. A rewritten file (`VACUUM`) has no such copies.

It takes about 10 ms and 1 MB of memory for each megabyte, and every write waits meanwhile. So it is
done a while after the first deletion, for all of them, and when the store is closed.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from conversation_store import connections
from conversation_store.errors import StoreRefused

MAX_BYTES: Final = 64 * 1024 * 1024
"""Larger files are not rewritten: that would take too much memory and hold up too much."""

FIRST_SECONDS: Final = 10.0
"""From a deletion to the rewriting, at least."""

MAX_SHARE: Final = 0.01
"""Of all time, how much may be spent on rewriting."""


class Leftovers:
    """The copies that SQLite may have left in a database file.

    Args:
        writer: the connection that writes; nothing else runs on it meanwhile.
        may_be_there: of an earlier process that did not close the store.
    """

    def __init__(self, writer: Any, *, may_be_there: bool) -> None:
        self._writer = writer
        self._may_be_there = asyncio.Event()
        if may_be_there:
            self.may_be_there()

    def may_be_there(self) -> None:
        """Let the file be rewritten in a while: something was deleted."""
        self._may_be_there.set()

    async def remove_in_time(self) -> None:
        """Be the one who rewrites the file after deletions, until cancelled.

        Raises:
            StoreFailed: the database is broken.
        """
        pause = FIRST_SECONDS
        while True:
            await self._may_be_there.wait()
            await asyncio.sleep(pause)
            began = time.monotonic()
            await self.remove()
            pause = max(FIRST_SECONDS, (time.monotonic() - began) / MAX_SHARE)

    async def remove(self) -> None:
        """Rewrite the file, if anything was deleted; if the disk refuses, another time.

        Raises:
            StoreFailed: the database is broken.
        """
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
