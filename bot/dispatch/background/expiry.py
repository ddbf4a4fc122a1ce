"""Disappearing messages: what was to be gone by now is gone from the store as well."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from conversation_store.models import AcceptedMessage
from conversation_store.store import ConversationStore

log = structlog.get_logger()

MAX_WAIT_SECONDS: Final = 60.0
"""A clock that is set, or a machine that slept, is noticed so late at the most."""

MIN_WAIT_SECONDS: Final = 0.5
"""Between two looks, however many messages disappear."""


class Expiry:
    """Removes what disappears, at its time.

    A message that still waits for its answer then loses its words; its answer says so. One whose
    turn waits for a person's answer goes with its turn.

    Args:
        store: what it is removed from.
        ended: told of messages whose turn waited for a person, and that are gone.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        ended: Callable[[AcceptedMessage], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._ended = ended
        self._clock = clock
        self._next_at: int | None = None
        self._sooner = asyncio.Event()

    def at(self, when_ms: int) -> None:
        """Look again at that time, if not before."""
        if self._next_at is None or when_ms < self._next_at:
            self._next_at = when_ms
            self._sooner.set()

    async def run(self) -> None:
        """Remove what is due, until cancelled; raises StoreError."""
        while True:
            self._sooner.clear()
            self._next_at = None
            expired = await self._store.upkeep.expire(int(self._clock() * 1_000))
            for accepted in expired.ended:
                self._ended(accepted)
            if expired.next_at is not None:
                self.at(expired.next_at)
            self._sooner.clear()
            await self._until_due()

    async def _until_due(self) -> None:
        await asyncio.sleep(MIN_WAIT_SECONDS)
        while (left := self._seconds_left()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._sooner.wait()
            except TimeoutError:
                return
            self._sooner.clear()

    def _seconds_left(self) -> float:
        if self._next_at is None:
            return MAX_WAIT_SECONDS
        return min(self._next_at / 1_000 - self._clock(), MAX_WAIT_SECONDS)
