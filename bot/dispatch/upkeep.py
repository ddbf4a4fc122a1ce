"""What is done for the store every hour, beside everything else."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

log = structlog.get_logger()

EVERY_SECONDS: Final = 3_600.0


class Tended(Protocol):
    """What is kept small. Implemented by `ConversationStore`."""

    async def purge(self, now_ms: int | None = None) -> int:
        """Delete what is older than the retention and return how many turns that were."""
        ...


async def tend(store: Tended, past: Callable[[], float]) -> None:
    """Do what there is to do now and every hour, until cancelled.

    Args:
        store: what is tended.
        past: the time that has passed for certain, in seconds since 1970.
    """
    while True:
        deleted = await store.purge(int(past() * 1_000))
        if deleted:
            log.info("store.purged", deleted=deleted)
        await asyncio.sleep(EVERY_SECONDS)
