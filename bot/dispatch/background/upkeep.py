"""What is done for the store every hour, beside everything else."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from conversation_store.errors import StoreFailed
from conversation_store.sections.upkeep import StoreUpkeep

log = structlog.get_logger()

EVERY_SECONDS: Final = 3_600.0


async def tend(store: StoreUpkeep, past: Callable[[], float]) -> None:
    """Do what there is to do now and every hour, until cancelled.

    Args:
        store: what is tended.
        past: the time that has passed for certain, in seconds since 1970.
    """
    while True:
        await _tend_once(store, int(past() * 1_000))
        await asyncio.sleep(EVERY_SECONDS)


async def _tend_once(store: StoreUpkeep, now_ms: int) -> None:
    if deleted := await store.purge(now_ms):
        log.info("store.purged", deleted=deleted)
    if given_back := await store.give_back():
        log.info("store.shrunk", bytes=given_back)
    try:
        if forgotten := await store.forget_before_upgrade(now_ms):
            log.info("store.copy_deleted", count=forgotten)
    except StoreFailed as error:
        log.warning("store.copy_stays", reason=str(error))  # until the next hour
