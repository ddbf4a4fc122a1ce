"""What keeps the store small, and says how it is."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from conversation_store import (
    audit_log,
    backup,
    doubts,
    exchanges,
    expiry,
    inbox,
    metadata,
    outgoing,
    overheard,
    times,
    turns,
    upkeep,
)
from conversation_store.database import (
    MAX_LOG_BYTES,
)
from conversation_store.models import (
    Expired,
    StoreSizes,
)
from conversation_store.sections.context import StoreContext

DAY_MS: Final = 86_400_000

PURGE_ROWS: Final = 100
"""Rows that go in one write."""

PINGED: Final = "pinged_at"
"""Name of the fact that shows whether anything can be written."""

DUPLICATES_KNOWN_DAYS: Final = 45
"""Signal's server keeps undelivered messages about that long (SIGNAL_WIRE 5.2), so the key of a
message must be remembered at least as long to know it again."""


class StoreUpkeep:
    """What keeps the store small, and says how it is.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def expire(self, now_ms: int | None = None) -> Expired:
        """Forget everything that has disappeared; what is in a turn that runs goes when it ends.

        The log is emptied every time: it still holds what was said in answers that were sent, and
        what could not be emptied before because somebody was reading.

        Args:
            now_ms: the time that counts as now; None takes the clock.

        Returns:
            when to come again, and the messages that disappeared before their turn began, without
            their text and the names of their files: they still owe an answer.
        """
        now = self._context.now_ms() if now_ms is None else now_ms
        expired = await self._context.database.write(lambda execute: expiry.expire(execute, now))
        await self._context.database.scrub()
        return expired

    async def purge(self, now_ms: int | None = None) -> int:
        """Delete what is older than the retention and return how many turns that were.

        Args:
            now_ms: the time that counts as now; None takes the clock.
        """
        now = self._context.now_ms() if now_ms is None else now_ms
        before = now - self._context.retention_days * DAY_MS
        keys_before = now - max(self._context.retention_days, DUPLICATES_KNOWN_DAYS) * DAY_MS

        deleted = await self._in_steps(partial(turns.purge, before=before))
        await self._in_steps(partial(outgoing.purge, before=before))
        await self._in_steps(partial(overheard.purge, before=before))
        await self._in_steps(exchanges.purge)
        await self._in_steps(partial(inbox.purge, before=keys_before))
        await self._in_steps(partial(audit_log.purge, before=before))
        await self._context.database.write(lambda execute: doubts.purge(execute, now))
        return deleted

    async def _in_steps(self, purge: Callable[..., int]) -> int:
        """Delete a few rows at a time, so that no message waits behind all of them."""
        deleted = 0
        while step := await self._context.database.write(partial(purge, at_most=PURGE_ROWS)):
            deleted += step
        if deleted:
            self._context.database.scrub_soon()
        return deleted

    async def give_back(self) -> int:
        """Give the file system back what the file holds no more; return how many bytes.

        A store that was made by a version before this one keeps its size, and uses it again.
        """
        log_bytes = await self._context.database.read_aside(
            lambda _: upkeep.log_bytes(self._context.path)
        )
        given_back = 0
        while step := await self._context.database.write(upkeep.give_back):
            given_back += step
        if log_bytes > MAX_LOG_BYTES:
            await self._context.database.scrub()
        return given_back

    async def forget_before_upgrade(self, now_ms: int) -> int:
        """Delete the store as it was before an upgrade, once that is long ago; return how many.

        Args:
            now_ms: the time that counts as now.

        Raises:
            StoreFailed: the disk does not let it.
        """
        return await asyncio.to_thread(backup.forget_before_upgrade, self._context.path, now_ms)

    async def newest(self) -> float | None:
        """Return when the newest message was received, in seconds since 1970; None without any."""
        received_at = await self._context.database.read(times.newest)
        return None if received_at is None else received_at / 1_000

    async def set_back(self) -> None:
        """Let what was stored in the future, by a clock that was wrong, have been stored now.

        Its timers begin anew; else it would stay for as long as the clock was ahead.
        """
        await self._context.database.write(
            lambda execute: times.set_back(execute, self._context.now_ms())
        )

    async def sizes(self) -> StoreSizes:
        """Return how large the store is and how much waits in it; cheap.

        Raises:
            StoreFailed: the disk is broken.
        """
        return await self._context.database.read_aside(
            lambda execute: upkeep.sizes(execute, self._context.path)
        )

    async def ping(self) -> None:
        """Write something and wait until it is on disk; see `refusal` for how long that takes.

        Raises:
            StoreError: the store cannot do its work.
        """
        now = str(self._context.now_ms())
        await self._context.database.write(lambda execute: metadata.put(execute, PINGED, now))
