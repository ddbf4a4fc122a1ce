"""The bot's own evidence: a statement about its account, and a quote that vouches for it."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from bot import __version__, build
from bot.attestation.bundle import MAX_BUNDLE_BYTES, Bundle
from bot.attestation.canonical import canonical_json
from bot.attestation.dstack import AgentQuote, DstackAgent
from bot.attestation.errors import AgentError
from bot.attestation.near_ai.evidence import ModelEvidence
from bot.attestation.policy import Policy
from bot.attestation.quote import low_s
from bot.attestation.statement import (
    ISSUED_AT_FORMAT,
    KeyOrigin,
    ModelSeal,
    Statement,
    report_data,
)
from bot.messaging.account import OwnIdentity

MAX_MODEL_BYTES: Final = MAX_BUNDLE_BYTES // 2
"""Of the model's evidence as JSON; the other half is for the bot's own."""
TURN_SECONDS: Final = 60.0
"""How long a request for a quote waits for those before it: two that come to nothing."""


class OwnEvidence:
    """Gathers evidence for one challenge after the other.

    Args:
        agent: makes the quotes.
        identity: asks the Signal side for the bot's account.
        policy: goes with every statement.
        key_origin: whether the account's key was made in here; what the image claims.
        model: returns the evidence of the model in use, while there is some; what is longer than
            `MAX_MODEL_BYTES` is left out.
        turn_seconds: how long a request for a quote waits for those before it.
        clock: Unix seconds.
    """

    def __init__(
        self,
        agent: DstackAgent,
        identity: Callable[[], Awaitable[OwnIdentity]],
        policy: Policy,
        *,
        key_origin: KeyOrigin,
        model: Callable[[], ModelEvidence | None] = lambda: None,
        turn_seconds: float = TURN_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._agent = agent
        self._identity = identity
        self._policy = policy
        self._key_origin = key_origin
        self._model = model
        self._turn_seconds = turn_seconds
        self._clock = clock
        self._commit = build.commit()
        self._quoting = asyncio.Lock()

    async def collect(self, challenge: str) -> Bundle:
        """Make a statement and have it quoted, for one challenge.

        Raises:
            AgentError: the guest agent made no quote.
            SignalError: the Signal side does not say whose account this is.
        """
        identity = await self._identity()
        model = self._fitting(self._model())
        statement = self._statement(identity, model)
        quote = await self._quote(report_data(statement, challenge))
        info = await self._agent.info()
        return Bundle(
            statement=statement,
            policy=self._policy.text(),
            quote=low_s(quote.quote),
            event_log=quote.event_log,
            app_compose=info.app_compose,
            vm_config=quote.vm_config,
            model=model,
            model_pins=self._policy.model_pins,
        )

    def _fitting(self, model: ModelEvidence | None) -> ModelEvidence | None:
        """Leave out what would make the bot's own proof one that nobody reads."""
        if model is None or len(canonical_json(model.to_plain()).encode()) > MAX_MODEL_BYTES:
            return None
        return model

    def _statement(self, identity: OwnIdentity, model: ModelEvidence | None) -> str:
        now = int(self._clock())
        return Statement(
            aci=identity.aci,
            identity_key=identity.identity_key.hex(),
            issued_at=datetime.fromtimestamp(now, UTC).strftime(ISSUED_AT_FORMAT),
            key_origin=self._key_origin,
            linked_devices=identity.linked_devices,
            policy_sha256=hashlib.sha256(self._policy.text().encode()).hexdigest(),
            commit=self._commit,
            version=__version__,
            model=ModelSeal(
                policy=self._policy.model_policy,
                evidence_sha256=model.sha256() if model else None,
                age_seconds=max(0, now - model.fetched_at) if model else None,
                pins_sha256=self._policy.model_pins_sha256,
            ),
        ).text()

    async def _quote(self, data: bytes) -> AgentQuote:
        """Have one quote made at a time: all of a host's machines share what makes them."""
        try:
            async with asyncio.timeout(self._turn_seconds):
                await self._quoting.acquire()
        except TimeoutError:
            raise AgentError("Too many people want a proof right now.") from None
        try:
            return await self._agent.quote(data)
        finally:
            self._quoting.release()
