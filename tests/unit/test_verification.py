"""Attacks on a bundle, each with the check that is meant to refuse it."""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.attestation.bundle import Bundle, ModelSeal
from bot.attestation.checks import Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import parse_event_log
from bot.attestation.near_ai.pins import pins_sha256
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.quote import Collateral
from bot.attestation.release import Release
from bot.attestation.trust import REAL, Trust
from bot.attestation.verification import Asked, BundleReport, verify_bundle
from tests.fakes.dstack_agent import COMPOSE, SoftAgent
from tests.fakes.soft_bundle import (
    CHALLENGE,
    OTHER_ACCOUNT,
    OTHER_SAFETY_NUMBER,
    POLICY,
    SAFETY_NUMBER,
    STATEMENT,
    soft_bundle,
    soft_release,
)
from tests.fakes.soft_tdx import SoftTdx
from tests.fakes.some_pins import SOME_PINS_TEXT

NOW: Final = 1782698817
PLATFORM: Final = SoftTdx(now=NOW)
AGENT: Final = SoftAgent(PLATFORM)
BUNDLE: Final = soft_bundle(PLATFORM, AGENT)
CLAIMING: Final = json.dumps(json.loads(COMPOSE) | {"allowed_envs": ["ATTESTATION__KEY_ORIGIN"]})
RELEASE: Final = Release.parse(json.dumps(soft_release(AGENT)).encode())


@dataclass(frozen=True)
class Verification:
    """Inputs of a verification; an attack changes one of them."""

    bundle: Bundle = BUNDLE
    challenge: str = CHALLENGE
    safety_number: str | None = SAFETY_NUMBER
    release: Release | None = RELEASE
    collateral: str | None = PLATFORM.collateral
    now: int = NOW
    trust: Trust = PLATFORM.trust

    def report(self) -> BundleReport:
        collateral = (
            "there is none" if self.collateral is None else Collateral.parse(self.collateral)
        )
        return verify_bundle(
            self.bundle,
            Asked(self.challenge, safety_number=self.safety_number, release=self.release),
            collateral=lambda _: collateral,
            now=self.now,
            trust=self.trust,
        )


def verdicts(report: BundleReport) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in report}


def shown(**changes: Any) -> Verification:
    """A bundle that was changed after it was made."""
    return Verification(replace(BUNDLE, **changes))


def ran(agent: SoftAgent, **changes: Any) -> Verification:
    return Verification(soft_bundle(PLATFORM, agent), **changes)


def saying(**changes: Any) -> Verification:
    """Present other code's statement and a quote for it."""
    return Verification(soft_bundle(PLATFORM, AGENT, statement=replace(STATEMENT, **changes)))


def releasing(**changes: Any) -> Verification:
    """Compare with another release than the running one."""
    changed = soft_release(AGENT) | changes
    return Verification(release=Release.parse(json.dumps(changed).encode()))


def without_kms(provider: str) -> SoftAgent:
    """Return a machine whose log lacks the entry that only a key service can vouch for."""
    agent = SoftAgent(PLATFORM, key_provider=provider)
    agent.event_log[:] = [e for e in agent.event_log if e["event"] != "os-image-hash"]
    return agent


def adding_an_event() -> SoftAgent:
    agent = SoftAgent(PLATFORM)
    agent.emit("compose-hash", b"\xab" * 32)
    return agent


def on_an_old_platform() -> Verification:
    old = SoftTdx("OutOfDate", now=NOW)
    bundle = soft_bundle(old, SoftAgent(old))
    return Verification(bundle, collateral=old.collateral, trust=old.trust)


NAMES_OF_A_GOOD_BUNDLE: Final = (
    "debug", "quote", "tcb", "attributes", "rtmrs", "boot_events", "compose",
    "images", "environment", "statement", "challenge", "safety_number", "linked_devices",
    "key_origin", "policy", "code", "issued_at", "release", "os", "key_provider", "model",
)  # fmt: skip

SYSTEM: Final = soft_release(AGENT)["os"][0]
OTHER_KEY: Final = replace(STATEMENT, identity_key=OTHER_ACCOUNT.identity_key).text()
OTHER_IMAGE: Final = RELEASE.compose_file.replace("ab" * 32, "cd" * 32)
EDITED_LOG: Final = BUNDLE.event_log.replace(AGENT.app_id.hex(), "ab" * 20)
ATTACKS: Final[dict[str, tuple[Verification, str]]] = {
    "replay": (Verification(challenge="red cow"), "challenge"),
    "relay": (Verification(safety_number=OTHER_SAFETY_NUMBER), "safety_number"),
    "own key in the statement": (shown(statement=OTHER_KEY), "statement"),
    "statement written another way": (shown(statement=STATEMENT.text() + " "), "statement"),
    "application with other white space": (shown(app_compose=COMPOSE + "\n"), "compose"),
    "release of another image": (
        releasing(compose_hashes=["ab" * 32], compose_file=OTHER_IMAGE),
        "release",
    ),
    "unknown system": (releasing(os=[SYSTEM | {"rtmr1": "ab" * 48}]), "os"),
    "unknown key service": (releasing(kms_ids=["ab" * 32]), "key_provider"),
    "no key service": (ran(without_kms("none")), "key_provider"),
    "test root in production": (Verification(trust=REAL), "quote"),
    "edited payload": (shown(event_log=EDITED_LOG), "rtmrs"),
    "second compose hash at run time": (ran(adding_an_event()), "boot_events"),
    "a linked device": (saying(linked_devices=1), "linked_devices"),
    "an imported key": (saying(key_origin="imported"), "key_origin"),
    "edited policy": (shown(policy=POLICY.replace("30", "0")), "policy"),
    "claims of its operator": (ran(SoftAgent(PLATFORM, CLAIMING), release=None), "environment"),
    "an owner": (Verification(soft_bundle(PLATFORM, AGENT, mr_owner=b"\1" * 48)), "attributes"),
    "debug TD": (Verification(soft_bundle(PLATFORM, AGENT, debug=True)), "debug"),
    "out of date": (on_an_old_platform(), "tcb"),
    "quote of garbage": (shown(quote=b"\x04" * 5000), "quote"),
}


def test_a_genuine_bundle_passes_and_every_check_is_made_in_order() -> None:
    report = Verification().report()
    assert report.failures == ()
    assert report.passed
    assert tuple(check.name for check in report) == NAMES_OF_A_GOOD_BUNDLE
    claims = {name for name, verdict in verdicts(report).items() if verdict is Verdict.CLAIMED}
    assert claims == {"linked_devices", "key_origin", "policy", "code", "issued_at"}
    unchecked = {n for n, verdict in verdicts(report).items() if verdict is Verdict.NOT_CHECKED}
    assert unchecked == {"model"}


SIDE_EFFECTS: Final = {
    # The operator's claims are checked here without a release.
    "environment": {"release", "os", "key_provider"},
    # Checks that become impossible after the named check has failed; all others keep their verdict.
    "statement": {"safety_number", "linked_devices", "key_origin", "policy", "code", "issued_at"},
    "rtmrs": {"boot_events", "compose", "images", "environment", "release", "key_provider"},
    "boot_events": {"compose", "images", "environment", "release", "key_provider"},
    "compose": {"images", "environment", "release"},
    "release": {"environment"},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails_its_check_and_leaves_the_others_as_they_are(attack: str) -> None:
    verification, name = ATTACKS[attack]
    attacked = verification.report()
    assert attacked[name].verdict is Verdict.FAILED
    assert not attacked.passed
    if attacked["quote"].verdict is Verdict.PROVEN:
        before, after_attack = verdicts(Verification().report()), verdicts(attacked)
        changed = {n for n in before if before[n] is not after_attack[n]} - {name}
        assert changed <= SIDE_EFFECTS.get(name, set())
    else:
        assert not {Verdict.PROVEN, Verdict.CLAIMED} & set(verdicts(attacked).values())


def test_checks_without_input_may_stay_unchecked() -> None:
    report = Verification(safety_number=None, release=None).report()
    assert report.passed
    for name in ("safety_number", "environment", "release", "os", "key_provider"):
        assert report[name].verdict is Verdict.NOT_CHECKED
    assert AGENT.compose_hash.hex() in report["release"].message


def test_without_collateral_a_bundle_does_not_pass_and_says_why() -> None:
    report = Verification(collateral=None).report()
    assert not report.passed
    assert report["quote"].verdict is Verdict.NOT_CHECKED
    assert report["quote"].message == "there is none"


@pytest.mark.parametrize("provider", ["none", "local-sgx", "somebody"])
def test_keys_without_a_key_service_are_a_warning_without_a_release(provider: str) -> None:
    report = ran(without_kms(provider), release=None).report()
    assert report["key_provider"].verdict is Verdict.CLAIMED
    assert "beware" in report["key_provider"].message


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 1},
        {"v": True},
        {"type": "signal-bot-bundle"},
        {"compose_hashes": []},
        {"compose_hashes": ["AB" * 32]},
        {"images": ["registry.example/library/bot:latest"]},
        {"compose_file": None},
        {"compose_file": "#" * 200_000},
        {"compose_file": '      SOME__NUMBER: "x" # slot: number'},
        {"compose_file": "      SOME__NUMBER: 1 # slot: number"},
        {"os": [{}]},
        {"os": []},
        {"kms_ids": ["abc"]},
        {"version": "\x1b[2J"},
        {"signature": "trust me"},
    ],
)
def test_a_release_that_is_not_strictly_one_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEvidence, match="the release is not of the expected shape"):
        releasing(**changes)


# The model's part is sealed in


MODEL: Final = ModelEvidence(b"{}", bytes(32), "qwen", None, NOW - 60)
OTHER_MODEL: Final = replace(MODEL, nonce=bytes(range(32)))
REQUIRED: Final = replace(
    STATEMENT,
    model=ModelSeal(policy="require", evidence_sha256=None, age_seconds=None, pins_sha256=None),
)
SEALED: Final = soft_bundle(PLATFORM, AGENT, statement=REQUIRED, model=MODEL, pins=SOME_PINS_TEXT)
OTHER_PINS: Final = SOME_PINS_TEXT.replace("ab" * 32, "ba" * 32)


def sealed(model: ModelEvidence | None, age: int | None = 60, **changes: Any) -> Bundle:
    """Present a bot that requires proof of its model, with such a statement."""
    seal = ModelSeal(
        policy="require",
        evidence_sha256=model.sha256() if model else None,
        age_seconds=age if model else None,
        pins_sha256=pins_sha256(SOME_PINS_TEXT),
    )
    statement = replace(STATEMENT, model=replace(seal, **changes))
    bundle = soft_bundle(PLATFORM, AGENT, statement=statement)
    return replace(bundle, model=model, model_pins=SOME_PINS_TEXT)


def test_sealed_evidence_of_the_model_is_proven() -> None:
    for bundle in (SEALED, Bundle.parse(SEALED.to_json())):
        report = Verification(bundle).report()
        assert report["model_evidence"].verdict is Verdict.PROVEN
        assert report["model_age"].verdict is Verdict.CLAIMED
        assert report["model_pins"].verdict is Verdict.CLAIMED
        assert pins_sha256(SOME_PINS_TEXT) in report["model_pins"].message


UNNAMED_PINS: Final = replace(sealed(MODEL, pins_sha256=None), model_pins=None)
NO_PINS: Final = replace(sealed(MODEL, pins_sha256=pins_sha256("{}")), model_pins="{}")
OTHER_POLICY: Final = soft_bundle(PLATFORM, AGENT, policy='{"model_policy":"require"}')
SEAL_ATTACKS: Final[dict[str, tuple[Bundle, str]]] = {
    "evidence is left out": (replace(SEALED, model=None), "model_evidence"),
    "other evidence": (replace(SEALED, model=OTHER_MODEL), "model_evidence"),
    "another time": (replace(SEALED, model=replace(MODEL, fetched_at=NOW)), "model_evidence"),
    "evidence is put in": (replace(BUNDLE, model=MODEL), "model_evidence"),
    "there is no evidence": (sealed(None), "model_evidence"),
    "evidence older than an hour": (sealed(MODEL, age=3601), "model_age"),
    "evidence without an age": (sealed(MODEL, age=None), "model_age"),
    "pins are left out": (replace(SEALED, model_pins=None), "model_pins"),
    "other pins": (replace(SEALED, model_pins=OTHER_PINS), "model_pins"),
    "a blank more in the pins": (replace(SEALED, model_pins=SOME_PINS_TEXT + " "), "model_pins"),
    "pins are put in": (replace(BUNDLE, model_pins=SOME_PINS_TEXT), "model_pins"),
    "there are no pins": (UNNAMED_PINS, "model_pins"),
    "pins that are none": (NO_PINS, "model_pins"),
    "the policy says otherwise": (OTHER_POLICY, "policy"),
    "the policy is no JSON": (soft_bundle(PLATFORM, AGENT, policy="{"), "policy"),
    "the policy is a list": (soft_bundle(PLATFORM, AGENT, policy="[]"), "policy"),
}


@pytest.mark.parametrize("attack", SEAL_ATTACKS)
def test_an_attack_on_the_models_part_is_refused_by_its_check(attack: str) -> None:
    bundle, name = SEAL_ATTACKS[attack]
    report = Verification(bundle).report()
    assert report[name].verdict is Verdict.FAILED
    assert not report.passed
    of_the_bot = {"quote", "statement", "challenge", "safety_number"}
    assert all(report[check].verdict is Verdict.PROVEN for check in of_the_bot)


def test_the_last_second_of_an_hour_still_counts() -> None:
    assert Verification(sealed(MODEL, age=3600)).report()["model_age"].verdict is Verdict.CLAIMED
    old_but_not_required = sealed(MODEL, age=7200, policy="warn")
    report = Verification(old_but_not_required).report()
    assert report["model_age"].verdict is Verdict.CLAIMED


def test_model_is_unknown_if_the_policy_does_not_hold() -> None:
    evidence = ModelEvidence(b"{}", bytes(32), "evil", None, 0)
    bundle = replace(BUNDLE, policy=POLICY.replace("qwen", "evil"), model=evidence)
    report = Verification(bundle).report()
    assert report["policy"].verdict is Verdict.FAILED
    assert report["model"].verdict is Verdict.NOT_CHECKED


def test_no_check_rests_on_how_the_machine_was_made() -> None:
    """A quote does not vouch for `vm_config`."""
    changed = Verification(replace(BUNDLE, vm_config="something else")).report()
    assert verdicts(changed) == verdicts(Verification().report())


CHARACTERS: Final = st.characters(codec="utf-8")
PADDING: Final[dict[type, Any]] = {str: "", bytes: b"\0"}
"""Zeros may follow a quote, because the agent's buffer is longer."""
BOUND_FIELDS: Final = ("statement", "policy", "quote", "app_compose")


@settings(deadline=None)
@given(st.sampled_from(BOUND_FIELDS), st.data())
def test_no_field_of_a_bundle_can_be_changed(name: str, data: st.DataObject) -> None:
    value: str | bytes = getattr(BUNDLE, name)
    changed = edited(value, data)
    report = Verification(replace(BUNDLE, **{name: changed})).report()
    assert report.passed is (changed.rstrip(PADDING[type(value)]) == value)


@settings(deadline=None)
@given(st.data())
def test_event_log_that_passes_has_unchanged_events(data: st.DataObject) -> None:
    """Exempt white space and the firmware's names of events: nothing reads them."""
    changed = str(edited(BUNDLE.event_log, data))
    report = Verification(replace(BUNDLE, event_log=changed)).report()
    if report.passed:
        assert parse_event_log(changed) == parse_event_log(BUNDLE.event_log)
    else:
        assert report["rtmrs"].verdict is Verdict.FAILED


def edited(value: Any, data: st.DataObject) -> Any:
    """Replace up to eight characters or bytes, anywhere, by up to eight others."""
    start = data.draw(st.integers(min_value=0, max_value=len(value)))
    end = data.draw(st.integers(min_value=start, max_value=min(len(value), start + 8)))
    others = st.binary(max_size=8) if isinstance(value, bytes) else st.text(CHARACTERS, max_size=8)
    return value[:start] + data.draw(others) + value[end:]
