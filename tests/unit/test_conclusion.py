"""The conclusion of a report in words claims no more than its verdicts."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.attestation.checks import (
    Check,
    Report,
    Verdict,
    claimed,
    failed,
    is_closed,
    not_checked,
    proven,
)
from bot.attestation.report import chat_report, conclusion, table
from bot.attestation.verification import BundleReport
from tests.fakes.dstack_agent import COMPOSE, SoftAgent
from tests.fakes.soft_bundle import CHALLENGE, soft_bundle, soft_release, soft_report
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import CLOCK

PLATFORM: Final = SoftTdx(now=CLOCK)
CLOSED: Final = ("closed to its operator", "closes even to its operator", "a closed machine")
DECISIVE: Final = ("debug", "quote", "attributes", "compose", "images", "environment", "os")


def claims_closed(text: str) -> bool:
    return any(words in " ".join(text.split()) for words in CLOSED)


def verified(*, with_release: bool, **fields: Any) -> tuple[BundleReport, str]:
    """Check a bot with these fields of app-compose.json, and have it report on itself."""
    agent = SoftAgent(PLATFORM, json.dumps(json.loads(COMPOSE) | fields))
    bundle = soft_bundle(PLATFORM, agent)
    report = soft_report(PLATFORM, bundle, soft_release(agent) if with_release else None)
    said = chat_report(
        bundle, report, challenge=CHALLENGE, chosen=True, in_group=False, model="None."
    )
    return report, said


def test_only_the_release_lets_a_machine_be_called_closed() -> None:
    report, said = verified(with_release=True)
    assert report.passed
    assert claims_closed(conclusion(report))
    assert claims_closed(said)
    # The operator may have started another system, which can claim anything.
    report, said = verified(with_release=False)
    assert report.passed
    assert not claims_closed(conclusion(report))
    without, _, with_release = said.partition("TOGETHER WITH THE PUBLISHED RELEASE FILE")
    assert (claims_closed(without), claims_closed(with_release)) == (False, True)


@pytest.mark.parametrize("with_release", [True, False])
def test_a_machine_with_outside_secrets_passes_but_is_not_called_closed(with_release: bool) -> None:
    report, said = verified(with_release=with_release, allowed_envs=["LLM__API_KEY"])
    assert report.passed
    assert not claims_closed("\n".join((table(report), conclusion(report), said)))
    assert "not proven that nothing is left to its operator" in conclusion(report)
    without, _, with_a_release = said.partition("TOGETHER WITH THE PUBLISHED RELEASE FILE")
    assert "nothing else" not in without
    assert "sets LLM__API_KEY, and nothing else" in with_a_release


VERDICTS: Final = st.sampled_from(list(Verdict))


@given(st.fixed_dictionaries(dict.fromkeys((*DECISIVE, "release"), VERDICTS)))
def test_closed_is_claimed_only_if_all_its_conditions_are_proven(
    verdicts: dict[str, Verdict],
) -> None:
    report = Report(Check(name, verdict, "", asked=False) for name, verdict in verdicts.items())
    proven = all(verdicts[name] is Verdict.PROVEN for name in DECISIVE)
    assert is_closed(report) is proven
    assert not claims_closed(conclusion(report)) or proven


def test_a_report_passes_if_nothing_failed_and_all_requests_were_checked() -> None:
    good, bad = proven("quote", "it is genuine"), failed("tcb", "it is old")
    asked, not_asked = not_checked("os", "nobody answered", asked=True), not_checked("code", "")
    assert Report([good, claimed("code", "it says so"), not_asked]).passed
    for checks in ([], [good, bad], [good, asked]):
        assert not Report(checks).passed
        assert not is_closed(Report(checks))
    assert Report([good, bad, not_asked, asked]).failures == (bad, asked)
