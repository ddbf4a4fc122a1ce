"""What makes the bot's own proofs, wired; used where there is a guest agent."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog

from bot.attestation.checks import Verdict
from bot.attestation.collateral import CollateralSource
from bot.attestation.dstack import REPORT_DATA_BYTES, DstackAgent
from bot.attestation.errors import AgentError
from bot.attestation.evidence import OwnEvidence
from bot.attestation.http import open_http
from bot.attestation.near_ai.evidence import ModelEvidence
from bot.attestation.operator_inputs import environment_check
from bot.attestation.policy import Policy
from bot.attestation.proof import OwnProof
from bot.attestation.quote import parse_quote, quote_checks
from bot.attestation.tdx_guest import td_settings_checks
from bot.attestation.trust import REAL, Trust
from bot.config.settings import Settings
from bot.messaging.account import OwnIdentity
from bot.messaging.messenger import Messenger
from bot.wiring.endpoint import model_pins

FIRST_QUOTE_SECONDS: Final = 15.0
"""How long the start waits for a quote; without one nothing is claimed."""

FIRST_EVIDENCE_SECONDS: Final = 15.0
"""How long a proof waits for the first verification of the model; then it is made without."""
CONNECTION_POLLS: Final = 300
CONNECTION_POLL_SECONDS: Final = 0.2
"""How long a proof waits for Signal; without a connection its answer could not be sent either."""

log = structlog.get_logger()


@asynccontextmanager
async def open_prover(
    settings: Settings,
    messenger: Messenger,
    model_evidence: Callable[[], ModelEvidence | None],
    *,
    settled: Callable[[], Awaitable[None]],
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[OwnProof]:
    """Provide what makes proofs.

    Args:
        settings: say where the agent is, and what the policy of a statement holds.
        messenger: knows the bot's account.
        model_evidence: returns the model's, while there is some.
        settled: returns once the model was looked at for the first time.
        trust: whom the own check of a proof trusts; only tests give another than the real one.
        clock: seconds since 1970.
    """
    attestation = settings.attestation
    pins = model_pins(settings)
    required = attestation.model_policy == "require"
    evidence = OwnEvidence(
        DstackAgent(attestation.dstack_socket),
        partial(_own_identity, messenger, settled if required else None),
        Policy(
            signal=urlsplit(settings.signal.url).hostname or "unix socket",
            llm_host=urlsplit(settings.llm.base_url).hostname or "",
            model=settings.llm.model,
            model_policy=attestation.model_policy,
            e2ee=attestation.e2ee,
            retention_days=settings.store.retention_days,
            workspace=settings.tools.workspace.for_ if settings.tools.enabled else "nobody",
            commands=_commands(settings),
            commands_network="on" if settings.commands_have_network else "off",
            model_pins=pins.text() if pins else None,
            other_models=tuple(
                f"{model.model} at {urlsplit(model.base_url).hostname}"
                for model in settings.llm.models.values()
            ),
        ),
        key_origin=attestation.key_origin,
        model=model_evidence,
        clock=clock,
    )
    async with open_http(tls=trust.tls) as http:
        collateral = CollateralSource(http, attestation.pccs_url, clock=clock)
        yield OwnProof(evidence, collateral, trust=trust, clock=clock)


def _commands(settings: Settings) -> str:
    """Return which commands a person is asked about; `off` where none can run."""
    tools = settings.tools
    can_run = tools.enabled and tools.commands.enabled and tools.workspace.for_ != "nobody"
    return tools.commands.approval if can_run else "off"


async def _own_identity(
    messenger: Messenger, settled: Callable[[], Awaitable[None]] | None
) -> OwnIdentity:
    """Ask Signal whose account this is; right after a start there may be no connection yet.

    Nor is there evidence of the model then, without which a proof fails that needs some: for that
    is waited where `settled` is given.
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
    """Whether the guest agent makes quotes of closed hardware, asked once and within a bound.

    Nobody else is asked, so that a start waits for no service: whether the hardware is up to date
    is for `!verify` to find out.
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
    checks = (*hardware, *td_settings_checks(quote))
    refused = [check for check in checks if check.verdict is Verdict.FAILED]
    if refused:
        log.error("attestation.no_quote", reason=refused[0].message)
    return not refused


async def left_to_the_operator(settings: Settings) -> str | None:
    """Return what is wrong with this machine's configuration; None where a proof would pass it."""
    agent = DstackAgent(settings.attestation.dstack_socket)
    try:
        async with asyncio.timeout(FIRST_QUOTE_SECONDS):
            info = await agent.info()
    except (AgentError, TimeoutError):
        return "the dstack guest agent does not tell the machine's configuration"
    check = environment_check(info.app_compose, is_running=True)
    return check.message if check.verdict is Verdict.FAILED else None
