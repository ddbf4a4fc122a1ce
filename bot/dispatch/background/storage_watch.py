"""What happens while the disk takes nothing: nothing is accepted that cannot be stored.

Whoever writes to the store waits until it does (`conversation_store.database`). Meanwhile messages
stay on Signal's server, where no crash of this machine can lose them.
"""

from typing import Protocol

import structlog

from bot.messaging.messenger import Messenger
from bot.observability import metrics

log = structlog.get_logger()


class Storage(Protocol):
    """What may refuse. Implemented by `ConversationStore`."""

    async def refusal_other_than(self, known: str | None) -> str | None:
        """Wait until there is another reason why nothing is taken, or none, and return it."""
        ...


class StorageWatch:
    """Holds messages back while the store refuses, and says so.

    Args:
        storage: what is watched.
        source: what is held.
    """

    def __init__(self, storage: Storage, source: Messenger) -> None:
        self._storage = storage
        self._source = source

    async def run(self) -> None:
        """Watch until cancelled."""
        metrics.STORE_WRITABLE.set(1)
        while True:
            refusal = await self._storage.refusal_other_than(None)
            metrics.STORE_WRITABLE.set(0)
            await self._source.hold_receiving()
            while refusal is not None:
                log.error("store.refuses", reason=refusal)
                refusal = await self._storage.refusal_other_than(refusal)
            metrics.STORE_WRITABLE.set(1)
            log.warning("store.takes_again")
            await self._source.resume_receiving()
