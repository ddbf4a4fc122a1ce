"""What a report comes to in words: only what its verdicts say."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.attestation.checks import Check, Report, Verdict, is_closed
from bot.attestation.quote import Collateral
from bot.attestation.release import Release
from bot.attestation.report import chat_report, conclusion, table
from bot.attestation.verification import Asked, BundleReport, verify_bundle
from tests.fakes.dstack_agent import COMPOSE, SoftAgent
from tests.fakes.soft_bundle import CHALLENGE, SAFETY_NUMBER, soft_bundle, soft_release
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import CLOCK

PLATFORM: Final = SoftTdx(now=CLOCK)
CLOSED: Final = ("closed to its operator", "closes even to its operator", "a closed machine")
DECISIVE: Final = ("debug", "quote", "attributes", "compose", "images", "environment", "os")


def claims_closed(text: str) -> bool:
    return any(words in " ".join(text.split()) for words in CLOSED)


def verified(app_compose: str, *, with_release: bool) -> tuple[BundleReport, str]:
    """Check a bot with this configuration, and have it report on itself."""
    agent = SoftAgent(PLATFORM, app_compose)
    bundle = soft_bundle(PLATFORM, agent)
    release = Release.parse(json.dumps(soft_release(agent)).encode()) if with_release else None
    report = verify_bundle(
        bundle,
        Asked(CHALLENGE, safety_number=SAFETY_NUMBER, release=release),
        collateral=lambda _: Collateral.parse(PLATFORM.collateral),
        now=CLOCK,
        trust=PLATFORM.trust,
    )
    said = chat_report(
        bundle, report, challenge=CHALLENGE, chosen=True, in_group=False, model="None."
    )
    return report, said


def everything_said(report: BundleReport, said: str) -> str:
    return "\n".join((table(report), conclusion(report), said))


def test_a_machine_with_nothing_left_to_its_operator_is_called_closed() -> None:
    report, said = verified(COMPOSE, with_release=True)
    assert report.passed
    assert claims_closed(conclusion(report))
    assert claims_closed(said)


def test_machine_with_an_unknown_system_is_not_called_closed() -> None:
    # Whoever operates it may have started a system of his own, which says whatever he likes.
    report, said = verified(COMPOSE, with_release=False)
    assert report.passed
    assert report["environment"].verdict is Verdict.NOT_CHECKED
    assert not claims_closed(conclusion(report))
    assert "not proven that nothing is left to its operator" in conclusion(report)
    without, _, with_release = said.partition("TOGETHER WITH THE PUBLISHED RELEASE FILE")
    assert not claims_closed(without)
    assert claims_closed(with_release)


@pytest.mark.parametrize("with_release", [True, False])
def test_a_machine_that_gets_secrets_from_outside_passes_and_is_not_called_closed(
    with_release: bool,
) -> None:
    fields: dict[str, Any] = json.loads(COMPOSE) | {"allowed_envs": ["LLM__API_KEY"]}
    report, said = verified(json.dumps(fields), with_release=with_release)
    assert report.passed
    assert not claims_closed(everything_said(report, said))
    assert "not proven that nothing is left to its operator" in conclusion(report)
    without, _, with_a_release = said.partition("TOGETHER WITH THE PUBLISHED RELEASE FILE")
    assert "nothing else" not in without
    assert "sets LLM__API_KEY, and nothing else" in with_a_release


def test_configuration_that_serves_its_operator_is_never_called_closed() -> None:
    fields: dict[str, Any] = json.loads(COMPOSE) | {"pre_launch_script": "id"}
    report, said = verified(json.dumps(fields), with_release=True)
    assert report["environment"].verdict is Verdict.FAILED
    assert conclusion(report).startswith("Do not rely on this bot")
    assert not claims_closed(everything_said(report, said))


VERDICTS: Final = st.sampled_from(list(Verdict))


@given(st.fixed_dictionaries(dict.fromkeys((*DECISIVE, "release"), VERDICTS)))
def test_closed_is_said_only_where_everything_that_it_rests_on_is_proven(
    verdicts: dict[str, Verdict],
) -> None:
    report = Report(Check(name, verdict, "", asked=False) for name, verdict in verdicts.items())
    proven = all(verdicts[name] is Verdict.PROVEN for name in DECISIVE)
    assert is_closed(report) is proven
    assert not claims_closed(conclusion(report)) or proven
