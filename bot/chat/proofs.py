"""Signatures of answers: check them after the turn, store the result, warn about wrong ones.

An answer never waits for its signature. After a restart, the bot checks the remaining ones.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from bot.chat.outbox import Notices
from bot.observability import metrics
from conversation_store.models import ExchangeState, StoredExchange
from conversation_store.store import ConversationStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.attestation.near_ai.signatures import AnswerSignatures

log = structlog.get_logger()

MAX_CHECKS: Final = 8
"""Concurrent checks."""

WARNING: Final = (
    "⚠️ Careful: the signature of my last answer is wrong. Somebody may have changed your message"
    " or my answer on its way to or from the model, so do not rely on it. Send !verify last for"
    " what was found."
)
MODEL_GONE: Final = "The model that answered is no longer among those that I can ask."
NO_NAME: Final = "The model's endpoint did not end this answer in a way that can be checked."


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class AnswerProofs:
    """Checks the signatures of finished turns; each model, by name, has its own checker."""

    signatures: "Mapping[str, AnswerSignatures]"
    store: ConversationStore
    notices: Notices
    warn: bool
    _running: set[int] = field(default_factory=set, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def wake(self) -> None:
        """Check the exchanges of turns that have just ended."""
        self._wake.set()

    async def run(self) -> None:
        """Check waiting signatures until cancelled; raises StoreError."""
        self.wake()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for exchange in await self.store.exchanges.unchecked(MAX_CHECKS):
                    if len(self._running) < MAX_CHECKS and exchange.id not in self._running:
                        self._running.add(exchange.id)
                        tasks.create_task(self._settle(exchange))

    async def _settle(self, exchange: StoredExchange) -> None:
        """Check a signature, store the result, and warn if it is wrong."""
        try:
            state: ExchangeState
            signatures = self.signatures.get(exchange.model)
            if signatures is None:
                state, kind, message = "unattested", "", MODEL_GONE
            elif exchange.completion_id:
                state, kind, message = await signatures.check(
                    exchange.completion_id, exchange.request_sha256, exchange.response_sha256
                )
            else:
                state, kind, message = "missing", "", NO_NAME
            metrics.SIGNATURES.labels(state).inc()
            if state == "wrong":
                log.error("signature.wrong", turn=exchange.turn_id)
            say = self.notices.languages.say
            warns = state == "wrong" and self.warn
            warning = (lambda chat: say(chat, WARNING)) if warns else None
            for stored in await self.store.exchanges.settle(
                exchange, state, kind=kind, message=message, warning=warning
            ):
                self.notices.queue(stored)
        finally:
            self._running.discard(exchange.id)
            self.wake()
