"""A proof that the bot makes on request, and its own check of it before it hands it out."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from bot.attestation.bundle import Bundle
from bot.attestation.checks import Report, Verdict
from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.evidence import OwnEvidence
from bot.attestation.quote import Collateral, TdQuote, parse_quote
from bot.attestation.trust import REAL, Trust
from bot.attestation.verification import verify_bundle
from bot.observability.metrics import OWN_PROOFS

COLLATERAL_SECONDS: Final = 15.0
"""A person waits for the answer, and whoever checks the file fetches collateral anyway."""


class CollateralSource(Protocol):
    """Where Intel's word on a machine comes from. Implemented by `collateral.CollateralSource`."""

    async def get(self, quote: TdQuote) -> Collateral:
        """Return the collateral of a quote's machine; EvidenceUnavailable when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Proof:
    """What goes to a person.

    Attributes:
        bundle: the evidence, which they can check themselves.
        report: how the bot's own check of it came out. What the model's evidence is worth is left
            out: see `bot.attestation.near_ai.service`.
    """

    bundle: Bundle
    report: Report


class OwnProof:
    """Makes proofs.

    Args:
        evidence: what they consist of.
        collateral: for the own check; where there is none, the check is less and says so.
        trust: whom the own check trusts.
        collateral_seconds: how long collateral is waited for.
        clock: Unix seconds.
    """

    def __init__(
        self,
        evidence: OwnEvidence,
        collateral: CollateralSource,
        *,
        trust: Trust = REAL,
        collateral_seconds: float = COLLATERAL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._evidence = evidence
        self._collateral = collateral
        self._trust = trust
        self._collateral_seconds = collateral_seconds
        self._clock = clock

    async def make(self, challenge: str) -> Proof:
        """Make a proof for a challenge, check it, and count how that came out.

        Raises:
            AgentError: the guest agent made no quote.
            SignalError: the Signal side does not say whose account this is.
        """
        outcome = "not_made"
        try:
            proof = await self._make(challenge)
            outcome = _outcome(proof.report)
        finally:
            OWN_PROOFS.labels(outcome).inc()
        return proof

    async def _make(self, challenge: str) -> Proof:
        bundle = await self._evidence.collect(challenge)
        collateral = await self._collateral_of(bundle)
        report = await asyncio.to_thread(
            verify_bundle,
            bundle,
            challenge=challenge,
            collateral=lambda _: collateral,
            now=int(self._clock()),
            look_at_model=False,
            trust=self._trust,
        )
        return Proof(bundle, report)

    async def _collateral_of(self, bundle: Bundle) -> Collateral | str:
        try:
            async with asyncio.timeout(self._collateral_seconds):
                return await self._collateral.get(parse_quote(bundle.quote))
        except (EvidenceUnavailable, TimeoutError):
            return "Intel's collateral could not be fetched"


def _outcome(report: Report) -> str:
    if any(check.verdict is Verdict.FAILED for check in report):
        return "failed"
    return "passed" if report.passed else "incomplete"
