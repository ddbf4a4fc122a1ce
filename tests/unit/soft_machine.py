"""The bot's evidence on a soft machine: a guest agent, an account, a policy, collateral.

async with machine(folder) as running:
    bundle = await running.evidence.collect(CHALLENGE)
    report = running.verify(bundle, CHALLENGE)
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bot.attestation.bundle import Bundle
from bot.attestation.checks import Report
from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.proof import OwnProof
from bot.attestation.quote import Collateral, TdQuote
from bot.attestation.verification import Asked, verify_bundle
from bot.config.loading import settings_of
from bot.signal.account import OwnIdentity
from bot.signal.errors import SignalUnavailable
from tests.fakes.dstack_agent import COMPOSE, SoftAgent, serving
from tests.fakes.soft_tdx import SoftTdx

CHALLENGE: Final = "blue giraffe 42"
IDENTITY: Final = OwnIdentity(
    aci="9d0652a3-dcc3-4d11-975f-74d61598733f",
    identity_key=bytes.fromhex(
        "0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868"
    ),
    linked_devices=0,
)
VARIABLES: Final = {
    "SIGNAL__PHONE_NUMBER": "+15550100000",
    "ATTESTATION__KEY_ORIGIN": "generated-in-tee",
    "ATTESTATION__E2EE": "true",
}
SETTINGS: Final = settings_of(VARIABLES)


class Intel:
    """A source of collateral that has some, or none."""

    def __init__(self, collateral: str | None) -> None:
        self._collateral = collateral

    async def get(self, quote: TdQuote) -> Collateral:
        if self._collateral is None:
            raise EvidenceUnavailable("no answer in time")
        return Collateral.parse(self._collateral)


class Account:
    """Signal side's information about the bot's account, or none."""

    def __init__(self) -> None:
        self.identity: OwnIdentity | None = IDENTITY

    async def own_identity(self) -> OwnIdentity:
        if self.identity is None:
            raise SignalUnavailable("no connection")
        return self.identity


@dataclass(frozen=True, slots=True)
class Machine:
    """A soft machine that runs the bot's evidence."""

    platform: SoftTdx
    agent: SoftAgent
    account: Account
    evidence: OwnProof

    def prover(self, intel: Intel) -> OwnProof:
        return replace(self.evidence, collateral=intel.get)

    def verify(self, bundle: Bundle) -> Report:
        """Check a bundle as a stranger's laptop does, its model left out."""
        return verify_bundle(
            bundle,
            Asked(CHALLENGE),
            collateral=lambda _: Collateral.parse(self.platform.collateral),
            now=self.platform.now,
            look_at_model=False,
            trust=self.platform.trust,
        )


@asynccontextmanager
async def machine(
    folder: Path,
    *,
    app_compose: str = COMPOSE,
    model: ModelEvidence | None = None,
) -> AsyncIterator[Machine]:
    platform, account = SoftTdx(), Account()
    agent = SoftAgent(platform, app_compose)
    async with serving(agent, folder / "dstack.sock") as socket:
        evidence = OwnProof(
            settings_of({**VARIABLES, "ATTESTATION__DSTACK_SOCKET": str(socket)}),
            account.own_identity,
            Intel(platform.collateral).get,
            model=lambda: model,
            trust=platform.trust,
            clock=lambda: platform.now,
        )
        yield Machine(platform, agent, account, evidence)
