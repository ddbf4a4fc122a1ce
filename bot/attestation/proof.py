"""Proofs of the bot: a statement and a quote for a challenge, and its own check of both."""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog
from pydantic import ValidationError

from bot import __version__, built_from
from bot.attestation.app_compose import configuration_problems, read_app_compose, services_of
from bot.attestation.bundle import (
    ISSUED_AT_FORMAT,
    MAX_BUNDLE_BYTES,
    Bundle,
    Code,
    ModelSeal,
    Statement,
    report_data,
)
from bot.attestation.checks import Report, Verdict
from bot.attestation.collateral import CollateralSource
from bot.attestation.dstack import REPORT_DATA_BYTES, AgentQuote, DstackAgent
from bot.attestation.errors import AgentError, EvidenceUnavailable, MalformedEvidence
from bot.attestation.http import open_http
from bot.attestation.near_ai.pins import pins_sha256, read_pins
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.quote import (
    ACCEPTED_TCB,
    Collateral,
    TdQuote,
    low_s,
    parse_quote,
    quote_checks,
)
from bot.attestation.strict_json import canonical_json
from bot.attestation.tdx_guest import attributes_check
from bot.attestation.trust import REAL, Trust
from bot.attestation.verification import Asked, verify_bundle
from bot.config.settings import Settings
from bot.observability.metrics import OWN_PROOFS
from bot.signal.account import OwnIdentity
from bot.signal.messenger import Messenger

MAX_MODEL_BYTES: Final = MAX_BUNDLE_BYTES // 2
"""For the model's evidence as JSON; the other half is for the bot's own."""
TURN_SECONDS: Final = 60.0
"""How long a request for a quote waits for earlier ones: the time of two that fail."""
COLLATERAL_SECONDS: Final = 15.0
"""A person waits for the answer, and the check of the file fetches collateral anyway."""
FIRST_QUOTE_SECONDS: Final = 15.0
"""How long the start waits for a quote; without one nothing is claimed."""

FIRST_EVIDENCE_SECONDS: Final = 15.0
"""How long a proof waits for the first verification of the model; then it is made without."""
CONNECTION_POLLS: Final = 300
CONNECTION_POLL_SECONDS: Final = 0.2
"""Pause between two looks. Without a connection to Signal, the proof could not be sent either."""

log = structlog.get_logger()


def policy_of(settings: Settings, pins_sha256: str | None) -> str:
    """Return the decisions of the settings about messages; a statement has the hash of this line.

    `signal` is the place of signal-cli, which holds the account's keys. `commands` says which
    commands ask a person first. No proof is about `other_models`.
    """
    tools, llm = settings.tools, settings.llm
    workspace = tools.workspace.for_ if tools.enabled else "nobody"
    can_run = tools.commands.enabled and workspace != "nobody"
    others = sorted(
        f"{model.model} at {urlsplit(model.base_url).hostname}" for model in llm.models.values()
    )
    return canonical_json(
        {
            "accepted_tcb": sorted(ACCEPTED_TCB),
            "commands": tools.commands.approval if can_run else "off",
            "e2ee": settings.attestation.e2ee,
            "llm_host": urlsplit(llm.base_url).hostname or "",
            "model": llm.model,
            "model_pins_sha256": pins_sha256,
            "model_policy": settings.attestation.model_policy,
            "retention_days": settings.store.retention_days,
            "signal": urlsplit(settings.signal.url).hostname or "unix socket",
            "signer_pins": [],
            "type": "signal-bot-policy",
            "v": 1,
            "workspace": workspace,
            **({"other_models": others} if others else {}),
        }
    )


@dataclass(frozen=True, slots=True)
class OwnProof:
    """Gathers the bot's evidence for challenges, and checks it.

    Attributes:
        collateral: for the own check, such as `CollateralSource.get`; without collateral the check
            is incomplete and says so.
        pins: JSON text of the machines that are accepted as the model's; None: any.
        model: returns the evidence of the model in use; evidence longer than `MAX_MODEL_BYTES` is
            left out.
    """

    settings: Settings
    identity: Callable[[], Awaitable[OwnIdentity]]
    collateral: Callable[[TdQuote], Awaitable[Collateral]]
    pins: str | None = None
    model: Callable[[], ModelEvidence | None] = lambda: None
    trust: Trust = REAL
    clock: Callable[[], float] = time.time
    _quoting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def _agent(self) -> DstackAgent:
        return DstackAgent(self.settings.attestation.dstack_socket)

    async def make(self, challenge: str) -> tuple[Bundle, Report]:
        """Make a proof for a challenge, check it without the model's part, and count the result."""
        outcome = "not_made"
        try:
            bundle = await self.collect(challenge)
            report = await self._checked(bundle, challenge)
            failed = report.with_verdict(Verdict.FAILED)
            outcome = "failed" if failed else "passed" if report.passed else "incomplete"
        finally:
            OWN_PROOFS.labels(outcome).inc()
        return bundle, report

    async def _checked(self, bundle: Bundle, challenge: str) -> Report:
        collateral: Collateral | str
        try:
            async with asyncio.timeout(COLLATERAL_SECONDS):
                collateral = await self.collateral(parse_quote(bundle.quote))
        except (EvidenceUnavailable, TimeoutError):
            collateral = "Intel's collateral could not be fetched"
        return await asyncio.to_thread(
            verify_bundle,
            bundle,
            Asked(challenge),
            collateral=lambda _: collateral,
            now=int(self.clock()),
            look_at_model=False,
            trust=self.trust,
        )

    async def collect(self, challenge: str) -> Bundle:
        """Make a statement and a quote of it for one challenge.

        Raises:
            AgentError: the guest agent made no quote.
            MalformedEvidence: no verifier would read the bundle.
            SignalError: the Signal side does not know the account.
        """
        try:
            return await self._collect(challenge)
        except ValidationError:
            raise MalformedEvidence("My own evidence is not of the expected shape.") from None

    async def _collect(self, challenge: str) -> Bundle:
        identity = await self.identity()
        model = self.model()
        if model and len(model.text().encode()) > MAX_MODEL_BYTES:
            model = None  # no verifier would read a longer bundle
        pins_name = pins_sha256(self.pins) if self.pins is not None else None
        policy = policy_of(self.settings, pins_name)
        statement = self._statement(identity, model, policy, pins_name)
        quote = await self._quote(report_data(statement, challenge))
        info = await self._agent.info()
        return Bundle(
            type="signal-bot-bundle",
            v=2,
            statement=statement,
            policy=policy,
            quote=low_s(quote.quote),
            event_log=quote.event_log,
            app_compose=info.app_compose,
            vm_config=quote.vm_config,
            model=model,
            model_pins=self.pins,
        )

    def _statement(
        self, identity: OwnIdentity, model: ModelEvidence | None, policy: str, pins: str | None
    ) -> str:
        now, wanted = int(self.clock()), self.settings.attestation
        return Statement(
            type="signal-bot-identity",
            v=2,
            aci=identity.aci,
            identity_key=identity.identity_key.hex(),
            issued_at=datetime.fromtimestamp(now, UTC).strftime(ISSUED_AT_FORMAT),
            key_origin=wanted.key_origin,
            linked_devices=identity.linked_devices,
            policy_sha256=hashlib.sha256(policy.encode()).hexdigest(),
            code=Code(built_from(), __version__),
            model=ModelSeal(
                policy=wanted.model_policy,
                evidence_sha256=model.sha256() if model else None,
                age_seconds=max(0, now - model.fetched_at) if model else None,
                pins_sha256=pins,
            ),
        ).text()

    async def _quote(self, data: bytes) -> AgentQuote:
        """Get one quote at a time: all machines of a host share the quoting enclave."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._quoting.acquire()
        except TimeoutError:
            raise AgentError("Too many people want a proof right now.") from None
        try:
            return await self._agent.quote(data)
        finally:
            self._quoting.release()


@contextlib.asynccontextmanager
async def open_prover(
    settings: Settings,
    messenger: Messenger,
    model_evidence: Callable[[], ModelEvidence | None],
    *,
    settled: Callable[[], Awaitable[None]],
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[OwnProof]:
    """Provide an `OwnProof` for this bot.

    Args:
        model_evidence: returns the model's evidence, if there is any.
        settled: returns once the first verification of the model has ended.
    """
    attestation = settings.attestation
    pins = read_pins(attestation.model_pins)
    required = attestation.model_policy == "require"
    async with open_http(tls=trust.tls) as http:
        yield OwnProof(
            settings,
            partial(_own_identity, messenger, settled if required else None),
            CollateralSource(http, attestation.pccs_url, clock=clock).get,
            pins=pins.text() if pins else None,
            model=model_evidence,
            trust=trust,
            clock=clock,
        )


async def _own_identity(
    messenger: Messenger, settled: Callable[[], Awaitable[None]] | None
) -> OwnIdentity:
    """Return the bot's account; wait for the connection right after a start.

    With `settled`, wait for the model's first verification too: the proof fails without evidence.
    """
    if settled is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_EVIDENCE_SECONDS):
                await settled()
    for _ in range(CONNECTION_POLLS):
        if messenger.connected:
            break
        await asyncio.sleep(CONNECTION_POLL_SECONDS)
    return await messenger.own_identity()


async def can_quote(settings: Settings, *, trust: Trust = REAL) -> bool:
    """Ask the guest agent once, within a bound, whether it makes quotes of closed hardware.

    This asks no other service, so that a start does not wait. `!verify` checks whether the hardware
    is up to date.
    """
    agent = DstackAgent(settings.attestation.dstack_socket)
    try:
        async with asyncio.timeout(FIRST_QUOTE_SECONDS):
            made = await agent.quote(secrets.token_bytes(REPORT_DATA_BYTES))
    except (AgentError, TimeoutError) as error:
        log.error("attestation.no_quote", error=type(error).__name__)
        return False
    quote = parse_quote(made.quote)
    hardware = quote_checks(quote, "none is asked for", now=int(time.time()), trust=trust)
    checks = (*hardware, attributes_check(quote))
    refused = [check for check in checks if check.verdict is Verdict.FAILED]
    if refused:
        log.error("attestation.no_quote", reason=refused[0].message)
    return not refused


async def measured_services(settings: Settings) -> frozenset[str]:
    """Return the services of the measured compose file; empty if there is none."""
    if not settings.attestation.has_agent:
        return frozenset()
    try:
        async with asyncio.timeout(FIRST_QUOTE_SECONDS):
            info = await DstackAgent(settings.attestation.dstack_socket).info()
        return services_of(info.app_compose)
    except (AgentError, MalformedEvidence, TimeoutError):
        return frozenset()


async def left_to_the_operator(settings: Settings) -> str | None:
    """Return the first problem of this machine's configuration that makes a proof fail, or None."""
    agent = DstackAgent(settings.attestation.dstack_socket)
    try:
        async with asyncio.timeout(FIRST_QUOTE_SECONDS):
            info = await agent.info()
    except (AgentError, TimeoutError):
        return "the dstack guest agent does not tell the machine's configuration"
    try:
        return next(configuration_problems(read_app_compose(info.app_compose)), None)
    except MalformedEvidence as error:
        return str(error)
