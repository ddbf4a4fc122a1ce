"""The bot's own evidence and its own check of it, with a soft machine behind the guest agent."""

import asyncio
import hashlib
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from bot import __version__, built_from
from bot.attestation.bundle import Bundle, Statement, report_data
from bot.attestation.checks import Verdict
from bot.attestation.errors import AgentError, MalformedEvidence
from bot.attestation.near_ai.report import MAX_REPORT_BYTES, ModelEvidence
from bot.attestation.proof import policy_of
from bot.attestation.quote import Collateral, TdQuote, low_s
from bot.config.loading import settings_of
from bot.signal.account import OwnIdentity
from bot.signal.errors import SignalUnavailable
from tests.fakes.dstack_agent import COMPOSE, silent
from tests.unit.soft_machine import CHALLENGE, IDENTITY, SETTINGS, VARIABLES, Intel, machine

MODEL: Final = ModelEvidence(
    report=b'{"model_attestations":[]}',
    nonce=bytes(32),
    model="openai/gpt-oss-120b",
    peer_key_sha256=None,
    fetched_at=1_782_698_817,
)


async def test_the_statement_names_the_account_the_code_and_the_policy(tmp_path: Path) -> None:
    async with machine(tmp_path) as running:
        running.account.identity = replace(IDENTITY, linked_devices=2)
        bundle = await running.evidence.collect(CHALLENGE)
        now = running.platform.now
        asked = [arguments for method, arguments in running.agent.requests if method == "GetQuote"]
    assert asked == [{"report_data": report_data(bundle.statement, CHALLENGE).hex()}]
    statement = Statement.parse(bundle.statement)
    assert (statement.aci, statement.linked_devices) == (IDENTITY.aci, 2)
    assert statement.identity_key == IDENTITY.identity_key.hex()
    assert statement.key_origin == "generated-in-tee"
    assert (statement.code.version, statement.code.commit) == (__version__, built_from())
    assert statement.policy_sha256 == hashlib.sha256(bundle.policy.encode()).hexdigest()
    assert datetime.fromisoformat(statement.issued_at).timestamp() == now


def test_policy_states_the_handling_of_messages() -> None:
    assert json.loads(policy_of(SETTINGS, None)) == {
        "accepted_tcb": ["SWHardeningNeeded", "UpToDate"],
        "commands": "ask",
        "e2ee": True,
        "llm_host": "cloud-api.near.ai",
        "model": "openai/gpt-oss-120b",
        "model_pins_sha256": None,
        "model_policy": "warn",
        "retention_days": 30,
        "signal": "unix socket",
        "signer_pins": [],
        "type": "signal-bot-policy",
        "v": 1,
        "workspace": "admins",
    }


@pytest.mark.parametrize(
    ("tools", "workspace", "commands"),
    [
        ({"WORKSPACE__FOR": "everyone", "COMMANDS__APPROVAL": "never"}, "everyone", "never"),
        ({"ENABLED": "false"}, "nobody", "off"),
    ],
)
def test_policy_states_who_has_a_workspace_and_if_commands_ask(
    tools: dict[str, str], workspace: str, commands: str
) -> None:
    chosen = {f"TOOLS__{name}": value for name, value in tools.items()}
    policy = json.loads(policy_of(settings_of(VARIABLES | chosen), None))
    assert (policy["workspace"], policy["commands"]) == (workspace, commands)


async def test_the_statement_seals_the_models_evidence_with_its_age(tmp_path: Path) -> None:
    async with machine(tmp_path) as running:
        fetched = replace(MODEL, fetched_at=running.platform.now - 90)
    async with machine(tmp_path, model=fetched) as running:
        statement = Statement.parse((await running.evidence.collect(CHALLENGE)).statement)
    assert statement.model is not None
    assert statement.model.evidence_sha256 == fetched.sha256()
    assert statement.model.age_seconds in range(90, 120)
    assert (statement.model.policy, statement.model.pins_sha256) == ("warn", None)


async def test_large_evidence_comes_through(tmp_path: Path) -> None:
    app = json.loads(COMPOSE)
    app["docker_compose_file"] += f"# {'x' * 1000}\n" * 100
    endless = replace(MODEL, report=b"[" + b'"",' * (MAX_REPORT_BYTES // 3 - 2) + b'""]')
    async with machine(tmp_path, app_compose=json.dumps(app), model=endless) as running:
        bundle = Bundle.parse((await running.evidence.collect(CHALLENGE)).to_json())
        assert bundle.app_compose == json.dumps(app)
        assert running.verify(bundle).passed


async def test_long_wait_for_a_quote_ends_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def hangs() -> web.Response:
        asked.set()
        return await silent()

    monkeypatch.setattr("bot.attestation.proof.TURN_SECONDS", 0.1)
    async with machine(tmp_path) as running, asyncio.TaskGroup() as tasks:
        running.agent.fault = hangs
        first = tasks.create_task(running.evidence.collect("first"))
        await asked.wait()
        with pytest.raises(AgentError, match="Too many people"):
            await running.evidence.collect("second")
        running.agent.fault = None
        first.cancel()
        assert running.verify(await running.evidence.collect(CHALLENGE)).passed


class SilentIntel(Intel):
    """A source of collateral that never answers."""

    async def get(self, quote: TdQuote) -> Collateral:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")


@pytest.mark.parametrize("intel", [Intel(None), SilentIntel(None)])
async def test_without_collateral_the_own_check_is_less_and_says_so(
    tmp_path: Path, intel: Intel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.attestation.proof.COLLATERAL_SECONDS", 0.1)
    async with machine(tmp_path) as running:
        bundle, report = await running.prover(intel).make(CHALLENGE)
        assert running.verify(bundle).passed
    assert [(check.name, check.verdict) for check in report.failures] == [
        ("quote", Verdict.NOT_CHECKED),
        ("tcb", Verdict.NOT_CHECKED),
    ]
    assert "Intel's collateral could not be fetched" in report["quote"].message


def test_a_build_that_says_nothing_usable_has_an_unknown_commit(tmp_path: Path) -> None:
    assert built_from(tmp_path) == "unknown"
    for text in ("", "main\n", "0123abc; rm", "ä" * 8, "0" * 65):
        (tmp_path / "COMMIT").write_text(text)
        assert built_from(tmp_path) == "unknown"
    (tmp_path / "COMMIT").write_text("0123abcd\n")
    assert built_from(tmp_path) == "0123abcd"


@pytest.mark.parametrize("at", [636, 1154])
async def test_quote_with_a_rewritten_signature_is_refused(tmp_path: Path, at: int) -> None:
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    async with machine(tmp_path) as running:
        bundle = await running.evidence.collect(CHALLENGE)
    assert low_s(bundle.quote) == bundle.quote
    rewritten = bytearray(bundle.quote)
    s = int.from_bytes(rewritten[at + 32 : at + 64], "big")
    rewritten[at + 32 : at + 64] = (order - s).to_bytes(32, "big")
    report = running.verify(replace(bundle, quote=bytes(rewritten)))
    assert report["quote"].verdict is Verdict.FAILED
    assert "rewritten" in report["quote"].message
    assert Verdict.PROVEN not in {check.verdict for check in report}
    assert running.verify(bundle).passed


@pytest.mark.parametrize("length", [0, 10, 660, 690, 1170, 1200])
def test_half_a_quote_is_left_as_it_is(length: int) -> None:
    assert low_s(b"\xff" * length) == b"\xff" * length


@pytest.mark.parametrize(
    ("identity", "error"),
    [(None, SignalUnavailable), (replace(IDENTITY, aci="not an ACI"), MalformedEvidence)],
)
async def test_without_a_usable_account_no_quote_is_made(
    tmp_path: Path, identity: OwnIdentity | None, error: type[Exception]
) -> None:
    async with machine(tmp_path) as running:
        running.account.identity = identity
        with pytest.raises(error):
            await running.evidence.collect(CHALLENGE)
    assert running.agent.requests == []
