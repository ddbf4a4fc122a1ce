"""The model that is in use: verified at start, kept verified, and what that means for a message.

What a verification finds holds until the first piece of its evidence expires, an hour at most.
Trouble of the services meanwhile changes nothing; evidence that is there and wrong ends it at
once. While NVIDIA's service cannot be reached, what it last said of the same GPUs counts for
`FIRMWARE_GRACE_SECONDS`. A policy of `require` lets nothing be sent to a model that is not
verified; `warn` never holds anything up. A model that is not asked for proof, or is not reached
over TLS, never comes here.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

import structlog

from bot.attestation.checks import Verdict
from bot.attestation.errors import AttestationNotOffered, EvidenceUnavailable, ModelNotVerified
from bot.attestation.near_ai.client import Gathered, NearAiClient
from bot.attestation.near_ai.evidence import ModelEvidence
from bot.attestation.near_ai.gpu import Devices
from bot.attestation.near_ai.pins import ModelPins
from bot.attestation.near_ai.verdict import (
    ModelState,
    ModelVerdict,
    refusal,
    summary,
)
from bot.attestation.near_ai.verification import (
    FirmwareRule,
    ModelFindings,
    Signer,
    verify_model,
)
from bot.attestation.pinning import AttestedKeys
from bot.attestation.trust import REAL, Trust
from bot.backoff import Backoff
from bot.observability.metrics import (
    MODEL_PROOF_REQUIRED,
    MODEL_VERIFICATIONS,
    MODEL_VERIFIED_UNTIL,
)

ADMIT_SECONDS: Final = 30.0
"""How long a message waits for the first verification to end."""
MAX_EVIDENCE_SECONDS: Final = 3600
"""As long as NVIDIA's tokens last; Intel's collateral alone would last for a month."""

FIRMWARE_GRACE_SECONDS: Final = 2 * 3600
"""How long NVIDIA's last good word on GPUs counts while its service cannot be reached."""
MAX_VOUCHED_MACHINES: Final = 64

RETRY: Final = Backoff(first_seconds=30.0, longest_seconds=600.0)
AFTER_STRANGERS: Final = Backoff(first_seconds=5.0, longest_seconds=600.0)

ModelPolicy = Literal["warn", "require"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """When to verify again, and for how long to wait for it.

    Attributes:
        admit_seconds: for a message that comes before the first verification has ended.
        renew_seconds: at the latest.
        margin_seconds: so long before the evidence expires.
        retry: after failures in a row.
        strangers: between verifications for connections that meet keys nothing vouches for.
    """

    admit_seconds: float = ADMIT_SECONDS
    renew_seconds: float = 1800.0
    margin_seconds: float = 600.0
    retry: Backoff = RETRY
    strangers: Backoff = AFTER_STRANGERS


DEFAULT_PACE: Final = Pace()


class AttestedModel:
    """Knows whether the model is verified, while `keep_verified` runs beside it.

    Args:
        client: fetches the evidence.
        policy: `warn` or `require`.
        pins: which machines are accepted; None: any, whose measurements are then only claimed.
        trust: whom the verification trusts; only tests give another than the real one.
        pace: when to verify again.
        clock: unix seconds.

    Attributes:
        keys: the TLS keys that are attested, for the connections that carry messages; enforced
            under `require`.
    """

    def __init__(
        self,
        client: NearAiClient,
        *,
        policy: ModelPolicy,
        pins: ModelPins | None = None,
        trust: Trust = REAL,
        pace: Pace = DEFAULT_PACE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keys: Final = AttestedKeys(enforcing=policy == "require", clock=clock)
        self._client = client
        self._policy = policy
        self._pins = pins
        self._trust = trust
        self._pace = pace
        self._clock = clock
        self._known = ModelVerdict(ModelState.PENDING, "", since=int(clock()))
        self._findings: ModelFindings | None = None
        self._signer_expiry: dict[tuple[str, Signer], float] = {}
        self._vouched_until: dict[Devices, int] = {}
        self._attempted = asyncio.Event()
        self._failures = 0
        self._retry_after = 0.0
        self._rounds_for_strangers = 0
        MODEL_PROOF_REQUIRED.set(policy == "require")
        MODEL_VERIFIED_UNTIL.set(0)

    @property
    def verdict(self) -> ModelVerdict:
        """What is known now; evidence that has expired meanwhile proves nothing."""
        known = self._known
        if known.expires_at is None or self._clock() < known.expires_at:
            return known
        reason = known.reason or "its last proof has expired"
        return ModelVerdict(ModelState.UNAVAILABLE, reason, known.expires_at)

    @property
    def proven(self) -> bool:
        """Whether the model is verified now."""
        return self.verdict.state is ModelState.VERIFIED

    async def settled(self) -> None:
        """Return once a first verification has ended, however; at once where there is none."""
        if self._known.state is ModelState.PENDING:
            await self._attempted.wait()

    async def first_verification(self) -> None:
        """Return once a first verification has ended, however, or after `admit_seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.admit_seconds):
                await self.settled()

    async def admit(self) -> None:
        """Return when a message may be sent to the model.

        Under `warn` that is at once. Under `require` the end of the first verification
        is waited for, `admit_seconds` at most.

        Raises:
            ModelNotVerified: it may not; carries the sentence for the person.
        """
        if self._policy != "require":
            return
        await self.first_verification()
        verdict = self.verdict
        if verdict.state is not ModelState.VERIFIED:
            raise ModelNotVerified(refusal(verdict))

    def summary(self) -> str:
        """Return what `!verify` and `!status` say about the model, in a few sentences."""
        verdict = self.verdict
        met_others = self._policy == "warn" and verdict.state is ModelState.VERIFIED
        if met_others and self.keys.strangers:
            return f"{summary(verdict)} {_STRANGERS}"
        return summary(verdict)

    def signers(self, kind: str, algorithm: str) -> tuple[Signer, ...]:
        """Return who may sign answers now.

        Behind one name there may be several machines with a key each, and an answer may have been
        signed just before a machine was replaced; so keys add up until their evidence expires.

        Args:
            kind: `provider_tee` for the model's machine, `gateway` for the one before it.
            algorithm: `ed25519` or `ecdsa`.
        """
        now = self._clock()
        return tuple(
            signer
            for (signs_for, signer), until in self._signer_expiry.items()
            if until > now and signs_for == kind and signer.algorithm == algorithm
        )

    def encryption_key(self) -> bytes | None:
        """Return the model's ed25519 public key, 32 bytes, while the model is verified."""
        if self._findings is None or not self.proven:
            return None
        keys = (one.public_key for one in self._findings.models if one.algorithm == "ed25519")
        return next(keys, None)

    def evidence(self) -> ModelEvidence | None:
        """Return what the verdict rests on, be it good or bad; None when there is none."""
        return self.verdict.evidence

    async def keep_verified(self) -> None:
        """Verify now and again in good time, for ever."""
        while True:
            await self.verify()
            await self._until_the_next()

    async def verify(self) -> ModelVerdict:
        """Verify once, now, and return what is known then. Each request in it has its bound."""
        began = time.monotonic()
        self.keys.stranger_met.clear()
        outcome = await self._attempt()
        self._attempted.set()
        MODEL_VERIFICATIONS.labels(outcome.value).inc()
        MODEL_VERIFIED_UNTIL.set(self._known.expires_at or 0)
        log.info(
            "attestation.model",
            outcome=outcome.value,
            state=self._known.state.value,
            reason=self._known.reason,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
        return self.verdict

    async def _attempt(self) -> ModelState:
        """Fetch and verify; return how that went, which is not always what is known then."""
        try:
            gathered = await self._client.gather()
        except AttestationNotOffered as error:
            return self._trouble(ModelState.NOT_OFFERED, str(error))
        except EvidenceUnavailable as error:
            reason = f"its proof could not be fetched ({error})"
            return self._trouble(ModelState.UNAVAILABLE, reason, error.retry_after_seconds)
        findings = await asyncio.to_thread(self._verified, gathered)
        if findings.report.passed:
            return self._accept(findings, gathered.evidence)
        if any(check.verdict is Verdict.FAILED for check in findings.report):
            return self._refuse(findings, gathered.evidence)
        reason = f"not all of its proof could be checked ({findings.report.failures[0].message})"
        return self._trouble(ModelState.UNAVAILABLE, reason)

    def _verified(self, gathered: Gathered) -> ModelFindings:
        return verify_model(
            gathered.evidence,
            collateral=gathered.collateral_for,
            nras=gathered.nras,
            now=self._now(),
            firmware=FirmwareRule(self._policy == "require", self._vouched_until),
            pins=self._pins,
            trust=self._trust,
        )

    def _accept(self, findings: ModelFindings, evidence: ModelEvidence) -> ModelState:
        expires_at = evidence.fetched_at + MAX_EVIDENCE_SECONDS
        if findings.expires_at is not None:
            expires_at = min(expires_at, findings.expires_at)
        self._failures = 0
        self._findings = findings
        self._known = ModelVerdict(
            ModelState.VERIFIED, "", self._now(), findings.report, expires_at, evidence
        )
        self.keys.vouch(findings.tls_keys, expires_at=expires_at)
        self._count_signers(findings, expires_at)
        self._remember(findings.vouched)
        return ModelState.VERIFIED

    def _count_signers(self, findings: ModelFindings, expires_at: float) -> None:
        now, known = self._clock(), self._signer_expiry
        self._signer_expiry = {signer: until for signer, until in known.items() if until > now}
        signers = [("provider_tee", signer) for signer in findings.models]
        if findings.gateway is not None:
            signers.append(("gateway", findings.gateway))
        for signer in signers:
            until = self._signer_expiry.get(signer, 0.0)
            self._signer_expiry[signer] = max(expires_at, until)

    def _remember(self, vouched: Iterable[Devices]) -> None:
        """Take note of GPUs that NVIDIA vouches for now; those of long ago are forgotten first."""
        for devices in vouched:
            self._vouched_until.pop(devices, None)
            self._vouched_until[devices] = self._now() + FIRMWARE_GRACE_SECONDS
        while len(self._vouched_until) > MAX_VOUCHED_MACHINES:
            del self._vouched_until[next(iter(self._vouched_until))]

    def _refuse(self, findings: ModelFindings, evidence: ModelEvidence) -> ModelState:
        self._failures += 1
        self._retry_after = 0.0
        self.keys.distrust()
        self._signer_expiry.clear()
        self._vouched_until.clear()
        reason = next(c.message for c in findings.report if c.verdict is Verdict.FAILED)
        self._known = ModelVerdict(
            ModelState.FAILED, reason, self._now(), findings.report, evidence=evidence
        )
        return ModelState.FAILED

    def _trouble(
        self, state: ModelState, reason: str, retry_after: float | None = None
    ) -> ModelState:
        """Take note that nothing new is known: what was proven, or refuted, stays so."""
        self._failures += 1
        self._retry_after = retry_after or 0.0
        verdict = self.verdict
        if verdict.state is ModelState.VERIFIED:
            self._known = replace(verdict, reason=reason)
        elif verdict.state is not ModelState.FAILED:
            since = verdict.since if verdict.state is state else self._now()
            self._known = ModelVerdict(state, reason, since)
        return state

    async def _until_the_next(self) -> None:
        if self._failures:
            await asyncio.sleep(self._retry_seconds())
            return
        if not self.keys.strangers:
            self._rounds_for_strangers = 0
            self.keys.stranger_met.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._renewal_seconds()):
                if self._rounds_for_strangers:
                    await asyncio.sleep(self._pace.strangers.seconds(self._rounds_for_strangers))
                await self.keys.stranger_met.wait()
                self._rounds_for_strangers += 1

    def _retry_seconds(self) -> float:
        backoff = self._pace.retry.seconds(self._failures)
        return max(backoff, min(self._retry_after, self._pace.retry.longest_seconds))

    def _renewal_seconds(self) -> float:
        """Return the wait for a verified model, never so short that it would be busy."""
        left = (self._known.expires_at or 0) - self._clock() - self._pace.margin_seconds
        return max(self._pace.retry.first_seconds, min(self._pace.renew_seconds, left))

    def _now(self) -> int:
        return int(self._clock())


_STRANGERS: Final = (
    "But within the last hour a connection to it met a TLS key that nothing has vouched for."
)
