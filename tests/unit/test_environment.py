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
    check = checked(allowed_envs=[*SECRETS, "SIGNAL_CODE"], init_script="true")
    assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, False)
    for name in (*SECRETS, "SIGNAL_CODE", "init_script"):
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
    "name",
    [
        "BASH_ENV",
        "LD_PRELOAD",
        "PATH",
        "COMPOSE_FILE",
        "COMPOSE_PROFILES",
        "DOCKER_HOST",
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
        "PYTHONPATH",
        "DSTACK_ROOT_PASSWORD",
        "ANYTHING_ELSE",
        "",
    ],
)
def test_a_variable_that_is_not_known_to_decide_nothing_is_not_the_operators(name: str) -> None:
    check = checked(allowed_envs=["LLM__API_KEY", name])
    assert check.verdict is Verdict.FAILED
    assert check.words.endswith(f": {name}")


@pytest.mark.parametrize(
    "line",
    [
        "      - ATTESTATION__KEY_ORIGIN=${LOG__LEVEL}",
        "      - 'ATTESTATION__KEY_ORIGIN=$LOG__LEVEL'",
        '      "ATTESTATION__KEY_ORIGIN": "${LOG__LEVEL:-imported}"',
        "      attestation__key_origin : im${LOG__LEVEL}ported",
        "      ATTESTATION__KEY_ORIGIN:\n        ${LOG__LEVEL}",
        '      "ATTESTATION__KEY\\x5fORIGIN": ${LOG__LEVEL}',
        "      LOG__LEVEL: &level ${LOG__LEVEL}\n      ATTESTATION__KEY_ORIGIN: *level",
    ],
)
def test_a_setting_under_another_name_is_the_operators_as_well(line: str) -> None:
    compose = f"services:\n  bot:\n    environment:\n{line}\n"
    renamed = checked(allowed_envs=["LOG__LEVEL"], docker_compose_file=compose)
    assert renamed.verdict is Verdict.FAILED
    assert renamed.words.lower().endswith(": attestation__key_origin")
    for without in (compose.replace("$", ""), compose.replace("$", "$$")):
        written = checked(allowed_envs=["LOG__LEVEL"], docker_compose_file=without)
        assert written.verdict is Verdict.NOT_CHECKED


@pytest.mark.parametrize(
    ("service", "place"),
    [
        ('environment: ["${LLM__API_KEY}"]', "${LLM__API_KEY}"),
        ("environment: {LD_PRELOAD: $LLM__API_KEY}", "LD_PRELOAD"),
        (
            "environment: {<<: {STORE__KEY: $LLM__API_KEY}}",
            "services.bot.environment.<<.STORE__KEY",
        ),
        ("command: run ${LLM__API_KEY}", "services.bot.command"),
        ('entrypoint: ["${LLM__API_KEY}"]', "services.bot.entrypoint."),
        ('volumes: ["${LLM__API_KEY}:/usr"]', "services.bot.volumes."),
    ],
)
def test_a_variable_in_another_place_than_a_secrets_decides(service: str, place: str) -> None:
    compose = f"services:\n  bot:\n    {service}\n"
    check = checked(allowed_envs=["LLM__API_KEY"], docker_compose_file=compose)
    assert check.verdict is Verdict.FAILED
    assert check.words.endswith(f": {place}")


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("services: {bot: {env_file: [/dstack/settings]}}", "services.bot.env_file"),
        ("secrets: {it: {environment: LLM__API_KEY}}", "secrets.it.environment"),
        ("configs: {it: {file: /dstack/settings}}", "configs.it.file"),
    ],
)
def test_what_comes_from_the_guest_s_files_and_variables_by_other_ways_decides(
    more: str, place: str
) -> None:
    check = checked(docker_compose_file=more)
    assert check.verdict is Verdict.FAILED
    assert check.words.endswith(f": {place}")


def test_a_secret_under_another_name_stays_a_secret() -> None:
    compose = "services:\n  bot:\n    environment:\n      - NOTES_TOKEN=${LLM__API_KEY}\n"
    check = checked(allowed_envs=["LLM__API_KEY"], docker_compose_file=compose)
    assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, False)


@pytest.mark.parametrize(
    "compose",
    [
        "services: [",
        "a: " + "[" * 5_000 + "]" * 5_000,
        "a: &a [*a]",
        "\n".join(["a0: &a0 []", *(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]" for n in range(1, 9))]),
        "#" * 200_000,
        "services: {bot: {environment: {STORE__PATH: a, STORE__PATH: b}}}",
    ],
    ids=["no YAML", "deep", "in itself", "a bomb", "long", "two values"],
)
def test_a_compose_file_that_cannot_be_read_leaves_anything_to_its_operator(compose: str) -> None:
    assert checked(docker_compose_file=compose).verdict is Verdict.FAILED


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
