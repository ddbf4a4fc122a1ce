"""Attacks on the evidence of a TD, each with the check that is meant to refuse it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from bot.attestation.checks import Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.quote import Collateral
from bot.attestation.tdx_guest import TdFindings, verify_td
from bot.attestation.trust import REAL, Trust
from tests.fakes.dstack_agent import COMPOSE, SoftAgent
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import (
    CLOCK,
    TdEvidence,
    recorded,
    recorded_getquote,
    recorded_tds,
)

DAY: Final = 24 * 3600
CHECKS: Final = (
    "debug",
    "quote",
    "tcb",
    "attributes",
    "rtmrs",
    "boot_events",
    "compose",
    "images",
)
SEPT_VE_DISABLE: Final = 1 << 28
XFAM: Final = 0x602E7
PLATFORM: Final = SoftTdx(now=CLOCK)
AGENT: Final = SoftAgent(PLATFORM)
LOOSE: Final = COMPOSE.replace("@sha256:" + "ab" * 32, ":latest")

Log = list[dict[str, Any]]


def evidence_of(
    agent: SoftAgent = AGENT,
    platform: SoftTdx = PLATFORM,
    *,
    mr_config_id: bytes | None = None,
    **quoted: Any,
) -> TdEvidence:
    config_id = agent.mr_config_id if mr_config_id is None else mr_config_id
    quote = platform.quote(bytes(64), agent.mr_td, agent.rtmrs(), config_id, **quoted)
    return TdEvidence(quote, json.dumps(agent.event_log), agent.app_compose)


GOOD: Final = evidence_of()


@dataclass(frozen=True)
class Attack:
    """What a verifier is shown."""

    evidence: TdEvidence = GOOD
    collateral: str = PLATFORM.collateral
    now: int = CLOCK
    trust: Trust = PLATFORM.trust

    def findings(self) -> TdFindings:
        collateral = Collateral.parse(self.collateral)
        return verify_td(*self.evidence, lambda _: collateral, now=self.now, trust=self.trust)


def logged(change: Callable[[Log], object]) -> Attack:
    """The log is changed after the quote was made."""
    log: Log = json.loads(str(GOOD.event_log))
    change(log)
    return Attack(GOOD._replace(event_log=json.dumps(log)))


def ran(change: Callable[[SoftAgent], object]) -> Attack:
    """The machine did something else, and its quote says so."""
    agent = SoftAgent(PLATFORM)
    change(agent)
    return Attack(evidence_of(agent))


def on(platform: SoftTdx, **quoted: Any) -> Attack:
    """The evidence comes from another machine, with its own collateral and root."""
    evidence = evidence_of(SoftAgent(platform), platform, **quoted)
    return Attack(evidence, platform.collateral, CLOCK, platform.trust)


def quoted(change: Callable[[bytes], bytes]) -> Attack:
    return Attack(GOOD._replace(quote=change(GOOD.quote)))


def at(name: str) -> int:
    return [event["event"] for event in AGENT.event_log].index(name)


ATTACKS: Final[dict[str, tuple[Attack, str]]] = {
    "a test machine shown as a real one": (Attack(trust=REAL), "quote"),
    "expired collateral": (Attack(now=CLOCK + 29 * DAY), "quote"),
    "a platform that is out of date": (on(SoftTdx("OutOfDate", now=CLOCK)), "tcb"),
    "a revoked platform": (on(SoftTdx("Revoked", now=CLOCK)), "tcb"),
    "a debug machine": (on(PLATFORM, debug=True), "debug"),
    **{
        f"a machine started with {name}": (
            on(PLATFORM, td_attributes=SEPT_VE_DISABLE | 1 << bit),
            "attributes",
        )
        for name, bit in {"LASS": 27, "PKS": 30, "KL": 31, "TPA": 62, "PERFMON": 63}.items()
    },
    "an attribute that nobody knows": (
        on(PLATFORM, td_attributes=SEPT_VE_DISABLE | 1 << 16),
        "attributes",
    ),
    "traces of the processor": (on(PLATFORM, xfam=XFAM | 1 << 8), "attributes"),
    "a feature that nobody knows": (on(PLATFORM, xfam=XFAM | 1 << 63), "attributes"),
    "an owner": (on(PLATFORM, mr_owner=bytes(47) + b"\1"), "attributes"),
    "an owner's configuration": (on(PLATFORM, mr_owner_config=b"\1" * 48), "attributes"),
    "changed report data": (
        quoted(lambda quote: quote[:568] + b"\1" * 64 + quote[632:]),
        "quote",
    ),
    "a log that is none": (Attack(GOOD._replace(event_log="[")), "rtmrs"),
    "an edited payload": (
        logged(lambda log: log[at("compose-hash")].update(event_payload="ab" * 32)),
        "rtmrs",
    ),
    "another boot's log": (
        Attack(GOOD._replace(event_log=SoftAgent(PLATFORM).event_log)),
        "rtmrs",
    ),
    "a second compose hash at run time": (
        ran(lambda agent: agent.emit("compose-hash", b"\1" * 32)),
        "boot_events",
    ),
    "an edited application": (
        Attack(GOOD._replace(app_compose=COMPOSE.replace("signal-tee-bot", "signal-tee-b0t"))),
        "compose",
    ),
    "another application": (Attack(GOOD._replace(app_compose=LOOSE)), "compose"),
    "a machine started for another application": (
        Attack(evidence_of(mr_config_id=b"\1" + b"\2" * 32 + bytes(15))),
        "compose",
    ),
    "an image that is not pinned": (Attack(evidence_of(SoftAgent(PLATFORM, LOOSE))), "images"),
}


def test_genuine_evidence_passes_and_its_checks_stand_in_order() -> None:
    findings = Attack().findings()
    assert [check.name for check in findings.report] == list(CHECKS)
    assert {check.verdict for check in findings.report} == {Verdict.PROVEN}
    assert findings.report.passed
    assert findings.compose_hash == AGENT.compose_hash
    assert findings.boot is not None
    assert findings.boot.app_id == AGENT.app_id


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused_by_its_check_alone(name: str) -> None:
    attack, by = ATTACKS[name]
    findings = attack.findings()
    assert not findings.report.passed
    assert [check.name for check in findings.report] == list(CHECKS)
    refusals = [c.name for c in findings.report if c.verdict is Verdict.FAILED]
    assert refusals == [by]
    for check in findings.report:
        assert check.verdict is not Verdict.NOT_CHECKED or check.asked
        assert check.message
    agreed = findings.report["compose"].verdict is Verdict.PROVEN
    assert (findings.compose_hash is not None) is agreed
    assert findings.compose_hash in {
        None,
        AGENT.compose_hash,
        SoftAgent(PLATFORM, LOOSE).compose_hash,
    }


@pytest.mark.parametrize("quote", [b"", GOOD.quote[:2000]])
def test_half_a_quote_is_malformed(quote: bytes) -> None:
    with pytest.raises(MalformedEvidence):
        Attack(GOOD._replace(quote=quote)).findings()


@pytest.mark.parametrize("attributes", [0, SEPT_VE_DISABLE | 1 << 29])
def test_a_machine_that_intel_s_verifier_refuses_as_well_is_named_by_its_attributes(
    attributes: int,
) -> None:
    report = on(PLATFORM, td_attributes=attributes).findings().report
    assert report["quote"].verdict is Verdict.FAILED
    assert report["attributes"].verdict is Verdict.FAILED


def test_a_machine_with_fewer_processor_features_is_a_usual_one() -> None:
    assert on(PLATFORM, xfam=7).findings().report.passed


# Genuine evidence


TDS: Final = (
    ("cloud-2026-06-29", "report.gateway_attestation", "gateway"),
    ("cloud-2026-06-29", "report.model_attestations[0]", "model"),
    ("direct-2026-06-29", "report", "model"),
)


@pytest.mark.parametrize(("capture", "place", "platform"), TDS)
def test_recorded_machines_pass_with_the_clock_of_their_time(
    capture: str, place: str, platform: str
) -> None:
    text = recorded(f"nearai/cloud-2026-06-29/collateral_{platform}.json").read_text()
    collateral = Collateral.parse(text)
    evidence = dict(recorded_tds(capture))[place]
    findings = verify_td(*evidence, lambda _: collateral, now=CLOCK)
    assert findings.report.failures == ()
    assert findings.boot is not None
    assert findings.compose_hash == findings.boot.compose_hash


@pytest.mark.parametrize("name", ["quote-report", "tdx-lite-getquote"])
def test_recorded_machines_without_their_application_fail_on_that_alone(name: str) -> None:
    collateral = Collateral.parse(
        recorded("nearai/cloud-2026-06-29/collateral_model.json").read_text()
    )
    findings = verify_td(*recorded_getquote(name), lambda _: collateral, now=CLOCK)
    assert [check.name for check in findings.report.failures] == ["compose", "images"]
