"""What is left to the operator: nothing that a proof is about."""

import json
from typing import Any

import pytest

from bot.attestation.checks import Check, Verdict
from bot.attestation.environment import _MAY_BE_THE_OPERATORS, environment_check
from bot.attestation.quote import Collateral
from bot.attestation.verification import verify_bundle
from bot.config import setting_names
from tests.fakes.dstack_agent import COMPOSE, SoftAgent
from tests.fakes.soft_bundle import CHALLENGE, soft_bundle
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import CLOCK

SECRETS = ("LLM__API_KEY", "MCP__SERVERS__NOTES__TOKEN", "MCP__SERVERS__NOTES__ENV__NOTES_KEY")


def app(**fields: Any) -> str:
    return json.dumps(json.loads(COMPOSE) | fields)


def checked(**fields: Any) -> Check:
    return environment_check(app(**fields), is_running=True)


@pytest.mark.parametrize(
    "fields",
    [{}, {"allowed_envs": []}, {"allowed_envs": None, "pre_launch_script": ""}],
    ids=["unnamed", "none", "null"],
)
def test_a_machine_without_variables_and_scripts_leaves_nothing_to_its_operator(
    fields: dict[str, Any],
) -> None:
    assert checked(**fields).verdict is Verdict.PROVEN


def test_secrets_and_scripts_are_named_for_who_reads_the_configuration() -> None:
    check = checked(allowed_envs=[*SECRETS, "TOKEN_OF_A_NEIGHBOUR"], init_script="true")
    assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, False)
    for name in (*SECRETS, "TOKEN_OF_A_NEIGHBOUR", "init_script"):
        assert name in check.words


@pytest.mark.parametrize(
    "name",
    [
        "ATTESTATION__KEY_ORIGIN",
        "attestation__key_origin",
        "ATTESTATION__MODEL_POLICY",
        "SIGNAL__URL",
        "LLM__BASE_URL",
        "BOT__SYSTEM_PROMPT",
        "STORE__KEY",
        "ACCESS__ADMINS",
        "MCP__SERVERS__X__COMMAND",
        "MCP__SERVERS__X__ENV__PATH",
        "LLM__API_KEY__BASE_URL",
    ],
)
def test_a_setting_that_decides_what_a_proof_is_worth_is_not_the_operators(name: str) -> None:
    check = checked(allowed_envs=["LLM__API_KEY", name])
    assert check.verdict is Verdict.FAILED
    assert check.words.endswith(f": {name}")


@pytest.mark.parametrize(
    "line",
    [
        "      - ATTESTATION__KEY_ORIGIN=${ORIGIN}",
        "      - 'ATTESTATION__KEY_ORIGIN=$ORIGIN'",
        '      "ATTESTATION__KEY_ORIGIN": "${ORIGIN:-imported}"',
        "      attestation__key_origin : im${ORIGIN}ported",
    ],
)
def test_a_setting_under_another_name_is_the_operators_as_well(line: str) -> None:
    compose = f"services:\n  bot:\n    environment:\n{line}\n"
    renamed = checked(allowed_envs=["ORIGIN"], docker_compose_file=compose)
    assert renamed.verdict is Verdict.FAILED
    assert renamed.words.lower().endswith(": attestation__key_origin")
    written = compose.replace("$", "")
    assert checked(allowed_envs=["ORIGIN"], docker_compose_file=written).verdict is not (
        Verdict.FAILED
    )


def test_a_secret_under_another_name_stays_a_secret() -> None:
    compose = "services:\n  bot:\n    environment:\n      - LLM__API_KEY=${KEY}\n"
    check = checked(allowed_envs=["KEY"], docker_compose_file=compose)
    assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, False)


def test_what_may_be_the_operators_are_settings_that_there_are() -> None:
    theirs = {name for name in setting_names() if _MAY_BE_THE_OPERATORS.fullmatch(name)}
    assert theirs == {
        "SIGNAL__PHONE_NUMBER",
        "LLM__API_KEY",
        "TOOLS__WEB_SEARCH__API_KEY",
        "ACCESS__ALLOWED",
        "MCP__SERVERS__NAME__TOKEN",
        "HEALTH__LISTEN",
        "LOG__LEVEL",
        "LOG__FORMAT",
    }


@pytest.mark.parametrize(
    "fields",
    [{"allowed_envs": "LLM__BASE_URL"}, {"allowed_envs": ["A"] * 1001}, {"init_script": ["x"]}],
    ids=["a text", "a thousand and one", "a script that is none"],
)
def test_what_cannot_be_read_is_not_taken_for_nothing(fields: dict[str, Any]) -> None:
    assert checked(**fields).verdict is Verdict.FAILED


def test_a_bundle_whose_claims_are_the_operators_does_not_pass() -> None:
    platform = SoftTdx(now=CLOCK)
    agent = SoftAgent(platform, app(allowed_envs=["ATTESTATION__KEY_ORIGIN"]))
    report = verify_bundle(
        soft_bundle(platform, agent),
        challenge=CHALLENGE,
        collateral=lambda _: Collateral.parse(platform.collateral),
        now=CLOCK,
        trust=platform.trust,
    )
    assert [check.name for check in report.failures] == ["environment"]
