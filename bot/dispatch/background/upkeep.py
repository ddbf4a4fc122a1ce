"""What is done for what is kept every hour, beside everything else."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from conversation_store.errors import StoreFailed
from conversation_store.sections.upkeep import StoreUpkeep

log = structlog.get_logger()

EVERY_SECONDS: Final = 3_600.0
DAY_SECONDS: Final = 86_400.0


class Folders(Protocol):
    """The files of chats. Implemented by `tools.workspace.workspaces.Workspaces`."""

    async def forget_unused(self, seconds: float) -> int:
        """Delete the files of chats that had no use for them for so long; return how many."""
        ...


async def tend(store: StoreUpkeep, past: Callable[[], float]) -> None:
    """Do what there is to do now and every hour, until cancelled.

    Args:
        store: what is tended.
        past: the time that has passed for certain, in seconds since 1970.
    """
    while True:
        await _tend_once(store, int(past() * 1_000))
        await asyncio.sleep(EVERY_SECONDS)


async def tend_folders(folders: Folders, retention_days: int) -> None:
    """Delete files of chats together with what was said there, until cancelled.

    Args:
        folders: have the files.
        retention_days: as of the store; files stay for an hour where it keeps nothing.
    """
    while True:
        seconds = max(EVERY_SECONDS, retention_days * DAY_SECONDS)
        if deleted := await folders.forget_unused(seconds):
            log.info("workspace.purged", deleted=deleted)
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
