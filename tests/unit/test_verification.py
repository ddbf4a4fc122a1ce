"""Attacks on a bundle, each with the check that is meant to refuse it."""

import json
from collections.abc import Callable
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
    """What somebody has in hand who verifies; an attack changes one thing of it."""

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


def after(tamper: Callable[[SoftAgent], object]) -> Verification:
    """A machine that was tampered with before it made its quote, which is therefore genuine."""
    agent = SoftAgent(PLATFORM)
    tamper(agent)
    return Verification(soft_bundle(PLATFORM, agent))


def saying(**changes: Any) -> Verification:
    """Code that says something else, and a quote that vouches for that."""
    return Verification(soft_bundle(PLATFORM, AGENT, statement=replace(STATEMENT, **changes)))


def with_log(change: Callable[[list[dict[str, Any]]], object]) -> Verification:
    """A log that was edited after the quote was made."""
    log = json.loads(BUNDLE.event_log)
    change(log)
    return Verification(replace(BUNDLE, event_log=json.dumps(log)))


def releasing(**changes: Any) -> Verification:
    """Another release than the one that runs."""
    changed = soft_release(AGENT) | changes
    return Verification(release=Release.parse(json.dumps(changed).encode()))


def on_platform(platform: SoftTdx, **changes: Any) -> Verification:
    """A bundle made on another machine."""
    agent = SoftAgent(platform)
    return Verification(
        bundle=soft_bundle(platform, agent),
        collateral=platform.collateral,
        trust=platform.trust,
        **changes,
    )


NAMES_OF_A_GOOD_BUNDLE: Final = (
    "debug", "quote", "tcb", "attributes", "rtmrs", "boot_events", "compose",
    "images", "environment", "statement", "challenge", "safety_number", "linked_devices",
    "key_origin", "policy", "code", "issued_at", "release", "os", "key_provider", "model",
)  # fmt: skip

ATTACKS: Final[dict[str, tuple[Callable[[], Verification], str]]] = {
    "replay for another challenge": (lambda: Verification(challenge="red cow"), "challenge"),
    "relay of another account's bundle": (
        lambda: Verification(safety_number=OTHER_SAFETY_NUMBER),
        "safety_number",
    ),
    "own key put into the statement": (
        lambda: Verification(
            replace(
                BUNDLE,
                statement=replace(STATEMENT, identity_key=OTHER_ACCOUNT.identity_key).text(),
            )
        ),
        "statement",
    ),
    "statement written another way": (
        lambda: Verification(replace(BUNDLE, statement=STATEMENT.text() + " ")),
        "statement",
    ),
    "app_compose with other white space": (
        lambda: Verification(replace(BUNDLE, app_compose=COMPOSE + "\n")),
        "compose",
    ),
    "release with another image": (
        lambda: releasing(
            compose_hashes=["ab" * 32],
            compose_file=RELEASE.compose_file.replace("ab" * 32, "cd" * 32),
        ),
        "release",
    ),
    "unknown system": (
        lambda: releasing(os=[soft_release(AGENT)["os"][0] | {"rtmr1": "ab" * 48}]),
        "os",
    ),
    "unknown key service": (lambda: releasing(kms_ids=["ab" * 32]), "key_provider"),
    "no key service": (
        lambda: Verification(
            soft_bundle(PLATFORM, without_kms(SoftAgent(PLATFORM, key_provider="none")))
        ),
        "key_provider",
    ),
    "test root in production": (lambda: Verification(trust=REAL), "quote"),
    "edited payload": (
        lambda: with_log(lambda log: log[4].update(event_payload="ab" * 20)),
        "rtmrs",
    ),
    "second compose hash at run time": (
        lambda: after(lambda agent: agent.emit("compose-hash", b"\xab" * 32)),
        "boot_events",
    ),
    "a linked device": (lambda: saying(linked_devices=1), "linked_devices"),
    "an imported key": (lambda: saying(key_origin="imported"), "key_origin"),
    "edited policy": (
        lambda: Verification(replace(BUNDLE, policy=POLICY.replace("30", "0"))),
        "policy",
    ),
    "claims of its operator": (
        lambda: Verification(soft_bundle(PLATFORM, SoftAgent(PLATFORM, CLAIMING)), release=None),
        "environment",
    ),
    "an owner": (
        lambda: Verification(soft_bundle(PLATFORM, AGENT, mr_owner=b"\1" * 48)),
        "attributes",
    ),
    "debug TD": (lambda: Verification(soft_bundle(PLATFORM, AGENT, debug=True)), "debug"),
    "out of date": (lambda: on_platform(SoftTdx("OutOfDate", now=NOW)), "tcb"),
    "quote of garbage": (lambda: Verification(replace(BUNDLE, quote=b"\x04" * 5000)), "quote"),
}


def without_kms(agent: SoftAgent) -> SoftAgent:
    """Leave out what only a key service could have said."""
    agent.event_log[:] = [e for e in agent.event_log if e["event"] != "os-image-hash"]
    return agent


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
    # What cannot be told any more once the named check has failed; everything else stays as it is.
    "statement": {"safety_number", "linked_devices", "key_origin", "policy", "code", "issued_at"},
    "rtmrs": {"boot_events", "compose", "images", "environment", "release", "key_provider"},
    "boot_events": {"compose", "images", "environment", "release", "key_provider"},
    "compose": {"images", "environment", "release"},
    "release": {"environment"},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails_its_check_and_leaves_the_others_as_they_are(attack: str) -> None:
    make, name = ATTACKS[attack]
    attacked = make().report()
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
    agent = without_kms(SoftAgent(PLATFORM, key_provider=provider))
    report = Verification(soft_bundle(PLATFORM, agent), release=None).report()
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
    """A bot that requires proof of its model, and whose statement says something of it."""
    seal = ModelSeal(
        policy="require",
        evidence_sha256=model.sha256() if model else None,
        age_seconds=age if model else None,
        pins_sha256=pins_sha256(SOME_PINS_TEXT),
    )
    statement = replace(STATEMENT, model=replace(seal, **changes))
    bundle = soft_bundle(PLATFORM, AGENT, statement=statement)
    return replace(bundle, model=model, model_pins=SOME_PINS_TEXT)


def test_evidence_of_the_model_that_is_sealed_in_is_said_to_be() -> None:
    for bundle in (SEALED, Bundle.parse(SEALED.to_json())):
        report = Verification(bundle).report()
        assert report["model_evidence"].verdict is Verdict.PROVEN
        assert report["model_age"].verdict is Verdict.CLAIMED
        assert report["model_pins"].verdict is Verdict.CLAIMED
        assert pins_sha256(SOME_PINS_TEXT) in report["model_pins"].message


SEAL_ATTACKS: Final[dict[str, tuple[Callable[[], Bundle], str]]] = {
    "the evidence is left out": (lambda: replace(SEALED, model=None), "model_evidence"),
    "the evidence is another": (lambda: replace(SEALED, model=OTHER_MODEL), "model_evidence"),
    "the evidence is older than it says": (
        lambda: replace(SEALED, model=replace(MODEL, fetched_at=NOW)),
        "model_evidence",
    ),
    "evidence is put in": (lambda: replace(BUNDLE, model=MODEL), "model_evidence"),
    "there is no evidence": (lambda: sealed(None), "model_evidence"),
    "the evidence is older than an hour": (lambda: sealed(MODEL, age=3601), "model_age"),
    "the evidence has no age": (lambda: sealed(MODEL, age=None), "model_age"),
    "the pins are left out": (lambda: replace(SEALED, model_pins=None), "model_pins"),
    "the pins are others": (lambda: replace(SEALED, model_pins=OTHER_PINS), "model_pins"),
    "the pins have a blank more": (
        lambda: replace(SEALED, model_pins=SOME_PINS_TEXT + " "),
        "model_pins",
    ),
    "pins are put in": (lambda: replace(BUNDLE, model_pins=SOME_PINS_TEXT), "model_pins"),
    "there are no pins": (
        lambda: replace(sealed(MODEL, pins_sha256=None), model_pins=None),
        "model_pins",
    ),
    "the pins are none": (
        lambda: replace(sealed(MODEL, pins_sha256=pins_sha256("{}")), model_pins="{}"),
        "model_pins",
    ),
    "the policy says otherwise": (
        lambda: soft_bundle(PLATFORM, AGENT, policy='{"model_policy":"require"}'),
        "policy",
    ),
}


@pytest.mark.parametrize("attack", SEAL_ATTACKS)
def test_an_attack_on_the_models_part_is_refused_by_its_check(attack: str) -> None:
    make, name = SEAL_ATTACKS[attack]
    report = Verification(make()).report()
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
    """`vm_config` is nothing that a quote vouches for."""
    changed = Verification(replace(BUNDLE, vm_config="something else")).report()
    assert verdicts(changed) == verdicts(Verification().report())


CHARACTERS: Final = st.characters(codec="utf-8")
PADDING: Final[dict[type, Any]] = {str: "", bytes: b"\0"}
"""Zeros may follow a quote: the agent's buffer is longer than it."""
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
    """White space and what the firmware calls its events are free; nothing reads them."""
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
