"""The model in use: verified at the start, kept verified, and the consequences for messages.

A verification holds until its first piece of evidence expires, at most for an hour. Trouble of the
services changes nothing in the meantime; wrong evidence ends it at once. While NVIDIA's service is
unreachable, its last good word on the same GPUs counts for `FIRMWARE_GRACE_SECONDS`. Under the
policy `require`, nothing is sent to a model that is not verified. The policy `warn` delays nothing,
unless conversations are encrypted: that needs a verified key. Without TLS, or with another API than
OpenAI's, this module is not used.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

import structlog

from bot.attestation.checks import Report, Verdict
from bot.attestation.collateral import CollateralSource
from bot.attestation.errors import AttestationNotOffered, EvidenceUnavailable, ModelNotVerified
from bot.attestation.http import HttpService, open_http
from bot.attestation.near_ai.client import Gathered, NearAiClient
from bot.attestation.near_ai.encryption import RequestKeys, request_keys
from bot.attestation.near_ai.nvidia import Devices
from bot.attestation.near_ai.pins import ModelPins, read_pins
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.near_ai.signatures import AnswerSignatures
from bot.attestation.near_ai.verification import (
    EARLIER_WORD,
    FirmwareRule,
    ModelFindings,
    Signer,
    verify_model,
)
from bot.attestation.pinning import AttestedKeys, pin, prolonged
from bot.attestation.trust import REAL, Trust
from bot.backoff import Backoff
from bot.config.settings import Settings
from bot.observability.metrics import (
    MODEL_PROOF_REQUIRED,
    MODEL_VERIFICATIONS,
    MODEL_VERIFIED_UNTIL,
)
from tools.http import new_tls_context

ADMIT_SECONDS: Final = 30.0
"""How long a message waits for the first verification."""
RENEW_SECONDS: Final = 1800.0
MARGIN_SECONDS: Final = 600.0
"""Evidence is renewed at the latest when it has this much time left."""
MAX_EVIDENCE_SECONDS: Final = 3600
"""As long as NVIDIA's tokens last; Intel's collateral alone would last for a month."""
FIRMWARE_GRACE_SECONDS: Final = 2 * 3600
"""How long NVIDIA's last good word on GPUs counts while its service is unreachable."""
NAMED_CHECKS: Final = 3
"""Failed checks that a message names; it counts the others."""

RETRY: Final = Backoff(first_seconds=30.0, longest_seconds=600.0)
AFTER_STRANGERS: Final = Backoff(first_seconds=5.0, longest_seconds=600.0)
"""Pauses between verifications after connections have met unattested keys."""

log = structlog.get_logger()


ModelState = Literal["pending", "verified", "failed", "unavailable", "not_offered"]
"""State of the model's proof."""


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """State of the model's proof, with its reason.

    Attributes:
        reason: why the model is not verified or, for a verified model, why its next verification
            does not work; a clause, may be empty.
        since: Unix seconds.
        report: None if there was nothing to check.
        expires_at: Unix seconds, for a verified model.
    """

    state: ModelState
    reason: str
    since: int
    report: Report | None = None
    expires_at: int | None = None
    evidence: ModelEvidence | None = None


@dataclass(slots=True)
class AttestedModel:
    """Knows whether the model is verified, while `keep_verified` runs.

    Attributes:
        pins: accepted machines; None accepts any, and only claims their measurements.
        encrypts: whether conversations are encrypted to a key that a verification finds.
        keys: attested TLS keys, for the connections that carry messages; enforced under `require`.
    """

    client: NearAiClient
    _: KW_ONLY
    policy: Literal["off", "warn", "require"]
    pins: ModelPins | None = None
    encrypts: bool = False
    trust: Trust = REAL
    clock: Callable[[], float] = time.time
    keys: AttestedKeys = field(init=False)
    _known: ModelVerdict = field(init=False)
    _signers: tuple[Signer, ...] = field(default=(), init=False)
    _signer_expiry: dict[Signer, float] = field(default_factory=dict, init=False)
    _vouched_until: dict[Devices, float] = field(default_factory=dict, init=False)
    _attempted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _failures: int = field(default=0, init=False)
    _retry_after: float = field(default=0.0, init=False)
    _rounds_for_strangers: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.keys = AttestedKeys(enforcing=self.policy == "require", clock=self.clock)
        self._known = ModelVerdict("pending", "", since=self._now())
        MODEL_PROOF_REQUIRED.set(self.policy == "require")
        MODEL_VERIFIED_UNTIL.set(0)

    @property
    def verdict(self) -> ModelVerdict:
        """The current verdict; expired evidence proves nothing."""
        known = self._known
        if known.expires_at is None or self.clock() < known.expires_at:
            return known
        reason = known.reason or "its last proof has expired"
        return ModelVerdict("unavailable", reason, known.expires_at)

    @property
    def proven(self) -> bool:
        """Whether the model is verified now."""
        return self.verdict.state == "verified"

    async def settled(self) -> None:
        """Wait until the first verification has ended, with any result."""
        await self._attempted.wait()

    async def admit(self) -> bool:
        """Return whether the model is verified, if a message may be sent to it.

        Waits for the first verification if the policy is `require`, or if conversations are
        encrypted. Under `warn` this never refuses a message.

        Raises:
            ModelNotVerified: no message may be sent; carries the sentence for the person.
        """
        if self.policy == "require" or self.encrypts:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ADMIT_SECONDS):
                    await self.settled()
        verdict = self.verdict
        if self.policy == "require" and verdict.state != "verified":
            raise ModelNotVerified(refusal(verdict))
        return verdict.state == "verified"

    def summary(self) -> str:
        """Return some sentences about the model for `!verify` and `!status`, a line for each."""
        verdict = self.verdict
        met_others = self.policy == "warn" and verdict.state == "verified"
        if met_others and self.keys.strangers:
            return f"{summary(verdict)}\n{_STRANGERS}"
        return summary(verdict)

    def signers(self, kind: str, algorithm: str) -> tuple[bytes, ...]:
        """Return the addresses of the attested signers of answers.

        One name may stand for several machines with a key each, and a machine may be replaced just
        after it signed an answer. So keys add up until their evidence expires.

        Args:
            kind: `provider_tee` for the model's machine, `gateway` for the gateway.
            algorithm: `ed25519` or `ecdsa`.
        """
        now = self.clock()
        return tuple(
            address
            for (*found, address), until in self._signer_expiry.items()
            if until > now and found == [kind, algorithm]
        )

    def encryption_key(self) -> bytes | None:
        """Return the model's ed25519 public key, 32 bytes, while the model is verified."""
        of_model = ["provider_tee", "ed25519"]
        keys = (key for *found, key in self._signers if found == of_model and self.proven)
        return next(keys, None)

    async def request_keys(self) -> RequestKeys:
        """Return fresh keys for one request; raises ModelNotVerified."""
        return await request_keys(self.encryption_key)

    def evidence(self) -> ModelEvidence | None:
        """Return the evidence of the current verdict, good or bad."""
        return self.verdict.evidence

    async def keep_verified(self) -> None:
        """Verify now, and again before each proof expires, forever."""
        while True:
            await self.verify()
            await self._until_the_next()

    async def verify(self) -> ModelVerdict:
        """Verify once, now; return the verdict afterwards."""
        began = time.monotonic()
        self.keys.stranger_met.clear()
        outcome = await self._attempt()
        self._attempted.set()
        MODEL_VERIFICATIONS.labels(outcome).inc()
        MODEL_VERIFIED_UNTIL.set(self._known.expires_at or 0)
        log.info(
            "attestation.model",
            outcome=outcome,
            state=self._known.state,
            reason=self._known.reason,
            duration_ms=round((time.monotonic() - began) * 1000),
        )
        return self.verdict

    async def _attempt(self) -> ModelState:
        """Fetch and verify; return the outcome, which may differ from the verdict."""
        try:
            gathered = await self.client.gather()
        except AttestationNotOffered as error:
            return self._trouble("not_offered", str(error))
        except EvidenceUnavailable as error:
            reason = f"its proof could not be fetched ({error})"
            return self._trouble("unavailable", reason, error.retry_after_seconds)
        findings = await asyncio.to_thread(self._verified, gathered)
        if findings.report.passed:
            return self._accept(findings, gathered.evidence)
        if findings.report.with_verdict(Verdict.FAILED):
            return self._refuse(findings, gathered.evidence)
        reason = f"not all of its proof could be checked ({findings.report.failures[0].message})"
        return self._trouble("unavailable", reason)

    def _verified(self, gathered: Gathered) -> ModelFindings:
        return verify_model(
            gathered.evidence,
            collateral=gathered.collateral_for,
            nras=gathered.nras,
            now=self._now(),
            firmware=FirmwareRule(self.policy == "require", self._vouched_until),
            pins=self.pins,
            trust=self.trust,
        )

    def _accept(self, findings: ModelFindings, evidence: ModelEvidence) -> ModelState:
        expires_at = evidence.fetched_at + MAX_EVIDENCE_SECONDS
        if findings.expires_at is not None:
            expires_at = min(expires_at, findings.expires_at)
        self._failures = 0
        self._signers = findings.signers
        self._known = ModelVerdict(
            "verified", "", self._now(), findings.report, expires_at, evidence
        )
        self.keys.vouch(findings.tls_keys, expires_at=expires_at)
        now, signers = self.clock(), self._signer_expiry
        self._signer_expiry = prolonged(signers, findings.signers, expires_at, now)
        until = now + FIRMWARE_GRACE_SECONDS
        self._vouched_until = prolonged(self._vouched_until, findings.vouched, until, now)
        return "verified"

    def _refuse(self, findings: ModelFindings, evidence: ModelEvidence) -> ModelState:
        self._failures += 1
        self._retry_after = 0.0
        self.keys.distrust()
        self._signer_expiry.clear()
        self._vouched_until.clear()
        reason = findings.report.with_verdict(Verdict.FAILED)[0].message
        self._known = ModelVerdict(
            "failed", reason, self._now(), findings.report, evidence=evidence
        )
        return "failed"

    def _trouble(
        self, state: ModelState, reason: str, retry_after: float | None = None
    ) -> ModelState:
        """Record that there is no new evidence; earlier proofs and failures stay."""
        self._failures += 1
        self._retry_after = retry_after or 0.0
        verdict = self.verdict
        if verdict.state == "verified":
            self._known = replace(verdict, reason=reason)
        elif verdict.state != "failed":
            since = verdict.since if verdict.state is state else self._now()
            self._known = ModelVerdict(state, reason, since)
        return state

    async def _until_the_next(self) -> None:
        if self._failures:
            longest = RETRY.longest_seconds
            backoff = RETRY.seconds(self._failures)
            await asyncio.sleep(max(backoff, min(self._retry_after, longest)))
            return
        if not self.keys.strangers:
            self._rounds_for_strangers = 0
            self.keys.stranger_met.clear()
        left = (self._known.expires_at or 0) - self.clock() - MARGIN_SECONDS
        renewal = max(RETRY.first_seconds, min(RENEW_SECONDS, left))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(renewal):
                if self._rounds_for_strangers:
                    await asyncio.sleep(AFTER_STRANGERS.seconds(self._rounds_for_strangers))
                await self.keys.stranger_met.wait()
                self._rounds_for_strangers += 1

    def _now(self) -> int:
        return int(self.clock())


_STRANGERS: Final = (
    "But within the last hour a connection to it met a TLS key that nothing has vouched for."
)


_REFUSALS: Final[dict[ModelState, str]] = {
    "pending": (
        "I have not sent your message to the model, because its proof of who can read along is"
        " still being checked; please try again in a minute."
    ),
    "failed": (
        "I have not sent your message to the model, because its proof of who can read along does"
        " not hold ({reason}); please tell my operator."
    ),
    "not_offered": (
        "I have not sent your message to the model, because its endpoint cannot prove who reads"
        " along, and I may only use one that can; please tell my operator."
    ),
}
_NOT_VERIFIED: Final = (
    "I have not sent your message to the model, because {reason}; please try again in a few"
    " minutes, and tell my operator if it stays."
)


def refusal(verdict: ModelVerdict) -> str:
    """Return the sentence for a person whose message is not sent to an unproven model."""
    return _REFUSALS.get(verdict.state, _NOT_VERIFIED).format(reason=verdict.reason)


def summary(verdict: ModelVerdict) -> str:
    """Return sentences about the model for `!verify` and `!status`, a line for each."""
    since = _moment(verdict.since)
    match verdict.state:
        case "pending":
            return "The model's proof of who can read along is being checked."
        case "verified":
            end = verdict.expires_at
            proved = f"The model proved at {since} that it runs in a trusted execution environment."
            until = [f"The proof holds until {_moment(end)}."] if end else []
            return "\n".join((proved, *until, *_open_ends(verdict)))
        case "failed":
            names = [check.name for check in verdict.report.failures] if verdict.report else []
            more = len(names) - NAMED_CHECKS
            named = ", ".join(names[:NAMED_CHECKS]) + (f" and {more} more" if more > 0 else "")
            why = f"{verdict.reason} ({named})"
            return f"The model's proof does not hold, since {since}: {why}."
        case "unavailable":
            return f"The model is not verified, since {since}: {verdict.reason}."
        case "not_offered":
            return f"The model's endpoint cannot prove who reads along: {verdict.reason}."


def _open_ends(verdict: ModelVerdict) -> Iterator[str]:
    checks = tuple(verdict.report or ())
    firmware = [check for check in checks if check.name.endswith("gpu_firmware")]
    if any(check.verdict is Verdict.NOT_CHECKED for check in firmware):
        yield "Its GPUs were checked by their own signatures only, without NVIDIA's service."
    elif any(check.message.startswith(EARLIER_WORD) for check in firmware):
        yield "NVIDIA's service does not answer now; its earlier word on these GPUs counts."
    if any(check.name.endswith(".os") and check.verdict is Verdict.CLAIMED for check in checks):
        yield "Which system and program run there is only claimed: no measurements are pinned."
    if verdict.reason:
        yield f"Proving it again does not work now: {verdict.reason}."


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


# Endpoint


@contextlib.asynccontextmanager
async def open_attested(
    settings: Settings, trust: Trust = REAL, clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[AttestedModel, ssl.SSLContext, AnswerSignatures]]:
    """Provide the attestation of the default model's endpoint.

    Returns:
        The model; a context for connections that only go to attested keys under `require`; and the
        checker of answers' signatures.

    Raises:
        SettingsError: the pins cannot be read.
    """
    wanted, llm = settings.attestation, settings.llm
    pins = read_pins(wanted.model_pins)
    async with open_http(tls=trust.tls) as http:
        model = AttestedModel(
            evidence_client(settings, http, trust, clock),
            policy="require" if wanted.model_policy == "require" else "warn",
            pins=pins,
            encrypts=wanted.e2ee,
            trust=trust,
            clock=clock,
        )
        signatures = AnswerSignatures(http, llm.base_url, llm.key, llm.model, model.signers)
        yield model, pin(_new_context(trust), model.keys), signatures


def evidence_client(
    settings: Settings, http: HttpService, trust: Trust, clock: Callable[[], float]
) -> NearAiClient:
    """Return a client for the endpoint's evidence."""
    return NearAiClient(
        http=http,
        collateral=CollateralSource(http, settings.attestation.pccs_url, clock=clock),
        base_url=settings.llm.base_url,
        model=settings.llm.model,
        api_key=settings.llm.key,
        trust=trust,
        clock=clock,
    )


def _new_context(trust: Trust) -> ssl.SSLContext:
    """Return a context of its own for the connections that are pinned."""
    context = new_tls_context()
    if trust.tls is not None:
        for authority in trust.tls.get_ca_certs(binary_form=True):
            context.load_verify_locations(cadata=authority)
    return context
