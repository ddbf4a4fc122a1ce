"""Bundles of a soft machine, and the release that they are compared with.

    platform = SoftTdx()
    agent = SoftAgent(platform)
    bundle = soft_bundle(platform, agent, challenge="blue horse")

To attack before the quote is made, change the agent (its log, its code) or pass other arguments. To
attack afterwards, change the bundle with `dataclasses.replace`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from bot.attestation.bundle import Bundle, Code, ModelSeal, Statement, report_data
from bot.attestation.near_ai.pins import pins_sha256
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.quote import Collateral, low_s
from bot.attestation.release import Release
from bot.attestation.verification import Asked, BundleReport, verify_bundle
from tests.fakes.dstack_agent import SoftAgent
from tests.fakes.soft_tdx import SoftTdx

CHALLENGE: Final = "blue horse 42"
SAFETY_NUMBER: Final = "44665 72466 96264 29303 74586 27907 77487 27647 02919 99521 91321 17432"
"""Safety number of a chat with the account of STATEMENT, whose half are the first thirty digits."""

POLICY: Final = '{"e2ee":true,"model":"qwen","retention_days":30}'
STATEMENT: Final = Statement(
    type="signal-bot-identity",
    v=2,
    aci="9d0652a3-dcc3-4d11-975f-74d61598733f",
    identity_key="0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868",
    issued_at="2026-06-29T02:06:57Z",
    key_origin="generated-in-tee",
    linked_devices=0,
    policy_sha256=hashlib.sha256(POLICY.encode()).hexdigest(),
    code=Code("0123abcd", "0.3.0"),
    model=ModelSeal(policy="warn", evidence_sha256=None, age_seconds=None, pins_sha256=None),
)
OTHER_ACCOUNT: Final = replace(
    STATEMENT,
    aci="796abedb-ca4e-4f18-8803-1fde5b921f9f",
    identity_key="05f781b6fb32fed9ba1cf2de978d4d5da28dc34046ae814402b5c0dbd96fda907b",
)
OTHER_SAFETY_NUMBER: Final = "77487" * 6 + SAFETY_NUMBER.replace(" ", "")[:25] + "00000"
"""Safety number of a chat between two other accounts."""


def soft_bundle(
    platform: SoftTdx,
    agent: SoftAgent,
    challenge: str = CHALLENGE,
    *,
    statement: Statement = STATEMENT,
    model: ModelEvidence | None = None,
    policy: str = POLICY,
    pins: str | None = None,
    **quoted: Any,
) -> Bundle:
    """Return the bundle of a bot on this machine for a challenge, with the model's part sealed in.

    Args:
        quoted: of `SoftTdx.quote`.
    """
    if model or pins:
        seal = ModelSeal(
            policy=statement.model.policy,
            evidence_sha256=model.sha256() if model else None,
            age_seconds=60 if model else None,
            pins_sha256=pins_sha256(pins) if pins else None,
        )
        statement = replace(statement, model=seal)
    if policy != POLICY:
        digest = hashlib.sha256(policy.encode()).hexdigest()
        statement = replace(statement, policy_sha256=digest)
    text = statement.text()
    quote = low_s(
        platform.quote(
            report_data(text, challenge),
            agent.mr_td,
            agent.rtmrs(),
            agent.mr_config_id,
            **quoted,
        )
    )
    return Bundle(
        type="signal-bot-bundle",
        v=2,
        statement=text,
        policy=policy,
        quote=quote,
        event_log=json.dumps(agent.event_log),
        app_compose=agent.app_compose,
        vm_config='{"cpu_count": 2}',
        model=model,
        model_pins=pins,
    )


def soft_report(
    platform: SoftTdx, bundle: Bundle, release: Mapping[str, Any] | None = None
) -> BundleReport:
    """Check a bundle like a person with its challenge and safety number."""
    published = Release.parse(json.dumps(release).encode()) if release else None
    return verify_bundle(
        bundle,
        Asked(CHALLENGE, safety_number=SAFETY_NUMBER, release=published),
        collateral=lambda _: Collateral.parse(platform.collateral),
        now=platform.now,
        trust=platform.trust,
    )


def soft_release(agent: SoftAgent) -> dict[str, Any]:
    """Return the release file that the agent's code, system and key service come from."""
    rtmr0, rtmr1, rtmr2, _ = agent.rtmrs()
    return {
        "type": "signal-bot-release",
        "v": 2,
        "version": "0.3.0",
        "commit": "0123abcd",
        "compose_hashes": [agent.compose_hash.hex()],
        "compose_file": json.loads(agent.app_compose)["docker_compose_file"],
        "os": [
            {
                "label": "soft, 2 CPUs",
                "mrtd": agent.mr_td.hex(),
                "rtmr0": rtmr0.hex(),
                "rtmr1": rtmr1.hex(),
                "rtmr2": rtmr2.hex(),
            }
        ],
        "kms_ids": [json.loads(agent.key_provider_info)["id"]],
    }
