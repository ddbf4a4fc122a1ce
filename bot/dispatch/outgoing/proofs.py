"""Signatures of answers: asked for after the turn, stored with it, and warned about where wrong.

An answer never waits for its signature. What is not checked when the process ends is checked by
the next one.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

import structlog

from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outgoing.outbox import Outbox
from bot.observability import metrics
from conversation_store.models import ExchangeState, StoredExchange
from conversation_store.store import ConversationStore

log = structlog.get_logger()

MAX_CHECKS: Final = 8
"""Signatures that are asked for at the same time."""

WARNING: Final = (
    "⚠️ Careful: the signature of my last answer is wrong. Somebody may have changed your message"
    " or my answer on its way to or from the model, so do not rely on it. Send !verify last for"
    " what was found."
)
MODEL_GONE: Final = "The model that answered is no longer among those that I can ask."
NO_NAME: Final = "The model's endpoint did not end this answer in a way that can be checked."


class SignatureVerdict(Protocol):
    """What a signature says, as `bot.attestation.near_ai.signatures` puts it."""

    @property
    def state(self) -> str:
        """One of proven, wrong, missing, unattested."""
        ...

    @property
    def kind(self) -> str:
        """Who signed: `provider_tee`, `gateway`, or nobody."""
        ...

    @property
    def message(self) -> str:
        """What that means, for people."""
        ...


class SignatureCheck(Protocol):
    """What checks. Implemented by `bot.attestation.near_ai.signatures.AnswerSignatures`."""

    async def check(
        self, completion_id: str, request_sha256: str, response_sha256: str
    ) -> SignatureVerdict:
        """Return, within a bound, what the signature of an exchange says."""
        ...


class AnswerProofs:
    """Checks the signatures of finished turns.

    Args:
        signatures: what checks those of each model, by the model's name.
        store: where exchanges wait and verdicts are kept.
        mailboxes: a warning goes behind the answer that it is about.
        outbox: sends it.
        warn: whether a wrong signature is told to the person at once.
    """

    def __init__(
        self,
        *,
        signatures: Mapping[str, SignatureCheck],
        store: ConversationStore,
        mailboxes: Mailboxes,
        outbox: Outbox,
        warn: bool,
    ) -> None:
        self._signatures = signatures
        self._store = store
        self._mailboxes = mailboxes
        self._outbox = outbox
        self._warning = WARNING if warn else None
        self._running: set[int] = set()
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for exchanges of turns that have just ended."""
        self._wake.set()

    async def run(self) -> None:
        """Check what waits, until cancelled; raises StoreError."""
        self.wake()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for exchange in await self._store.exchanges.unchecked(MAX_CHECKS):
                    if len(self._running) < MAX_CHECKS and exchange.id not in self._running:
                        self._running.add(exchange.id)
                        tasks.create_task(self._settle(exchange))

    async def _settle(self, exchange: StoredExchange) -> None:
        try:
            signatures = self._signatures.get(exchange.model)
            if signatures is None:
                state, kind, message = ExchangeState.UNATTESTED, "", MODEL_GONE
            elif exchange.completion_id:
                verdict = await signatures.check(
                    exchange.completion_id, exchange.request_sha256, exchange.response_sha256
                )
                state, kind, message = ExchangeState(verdict.state), verdict.kind, verdict.message
            else:
                state, kind, message = ExchangeState.MISSING, "", NO_NAME
            await self._keep(exchange, state, kind, message)
        finally:
            self._running.discard(exchange.id)
            self.wake()

    async def _keep(
        self, exchange: StoredExchange, state: ExchangeState, kind: str, message: str
    ) -> None:
        """Store what was found, and warn where that is called for."""
        metrics.SIGNATURES.labels(state).inc()
        wrong = state is ExchangeState.WRONG
        if wrong:
            log.error("signature.wrong", turn=exchange.turn_id)
        warnings = await self._store.exchanges.settle(
            exchange, state, kind=kind, message=message, warning=self._warning if wrong else None
        )
        for warning in warnings:
            job = Job(partial(self._outbox.deliver, (warning,)))
            self._mailboxes.add(warning.chat, job)
