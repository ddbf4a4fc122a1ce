"""Nothing that a proof is about is left to the operator, if the release matches."""

import json
from typing import Any

import pytest

from bot.attestation.app_compose import FROM_OUTSIDE
from bot.attestation.checks import Check, Verdict
from bot.attestation.release import Release, environment_check
from bot.config.loading import setting_names
from tests.fakes.dstack_agent import COMPOSE, SoftAgent
from tests.fakes.soft_bundle import soft_release
from tests.fakes.soft_tdx import SoftTdx

SECRETS = ("LLM__API_KEY", "MCP__SERVERS__NOTES__TOKEN", "MCP__SERVERS__NOTES__ENV__NOTES_KEY")
NAMED = "".join(f"# ${{{name}}}\n" for name in (*SECRETS, "SIGNAL_CODE"))
"""Comments give the variables a place in the compose file."""


def release_of(app_compose: str) -> Release:
    return Release.parse(json.dumps(soft_release(SoftAgent(SoftTdx(), app_compose))).encode())


def app(**fields: Any) -> str:
    return json.dumps(json.loads(COMPOSE) | fields)


RELEASE = release_of(app())


def shown(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else "a name that cannot be shown"


def checked(**fields: Any) -> Check:
    return environment_check(app(**fields), RELEASE, is_running=True)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"allowed_envs": []},
        {"allowed_envs": None, "pre_launch_script": ""},
        {"name": ""},
        {
            "features": ["kms", "tproxy-net"],
            "kms_enabled": True,
            "gateway_enabled": True,
            "tproxy_enabled": False,
            "local_key_provider_enabled": False,
            "key_provider": "kms",
            "key_provider_id": "00ff",
            "public_logs": False,
            "public_sysinfo": False,
            "public_tcbinfo": True,
            "no_instance_id": False,
            "secure_time": True,
            "storage_fs": "zfs",
            "swap_size": 0,
            "docker_config": {},
            "event_log_version": 2,
        },
    ],
    ids=["unnamed", "none", "null", "without a name", "all that tools write"],
)
def test_published_machine_without_variables_leaves_nothing_to_its_operator(
    fields: dict[str, Any],
) -> None:
    check = checked(**fields)
    assert (check.verdict, check.message) == (
        Verdict.PROVEN,
        "nothing in there is left to the operator",
    )


def test_refused_script_of_phala_cloud_comes_with_the_option_that_leaves_it_out() -> None:
    check = checked(pre_launch_script="#!/bin/bash\n")
    assert check.verdict is Verdict.FAILED
    assert "phala deploy --no-pre-launch-script leaves out" in check.message


def test_variables_from_outside_are_named() -> None:
    text = app(docker_compose_file=NAMED, allowed_envs=[*SECRETS, "SIGNAL_CODE"])
    for release in (release_of(text), None):
        check = environment_check(text, release, is_running=True)
        assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, False)
        for name in (*SECRETS, "SIGNAL_CODE"):
            assert name in check.message


def test_unpublished_configuration_is_not_checked() -> None:
    check = checked(allowed_envs=["LLM__API_KEY"])
    assert check.verdict is Verdict.NOT_CHECKED
    assert "was not published: it lets in LLM__API_KEY" in check.message
    for release in (None, release_of(app(docker_compose_file="services: {}"))):
        check = environment_check(app(), release, is_running=True)
        assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, False)


def test_configuration_that_does_not_run_is_not_checked() -> None:
    check = environment_check(app(), RELEASE, is_running=False)
    assert (check.verdict, check.asked) == (Verdict.NOT_CHECKED, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("public_logs", True),
        ("public_logs", None),
        ("public_sysinfo", True),
        ("pre_launch_script", "docker run --privileged evil"),
        ("pre_launch_script", None),
        ("init_script", "true"),
        ("bash_script", "x"),
        ("runner", "bash"),
        ("manifest_version", 9),
        ("manifest_version", True),
        ("name", "$(id)"),
        ("features", ["evil"]),
        ("kms_enabled", "true"),
        ("key_provider", "evil"),
        ("key_provider_id", "xyz"),
        ("docker_config", {"registry": "evil.example"}),
        ("event_log_version", 3),
        ("storage_fs", "nfs"),
        ("swap_size", "1 x"),
        ("docker_compose_file", ["services: {}"]),
        ("port_policy", {"ports": []}),
        ("Public_Logs", False),
        ("hooks", []),
        ("an \u202e unknown\nkey", 1),
    ],
)
def test_field_that_serves_the_operator_is_refused_by_name(name: str, value: object) -> None:
    check = checked(**{name: value})
    assert check.verdict is Verdict.FAILED
    assert shown(name) in check.message
    assert check.message.isascii()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{", '{"runner": "a", "runner": "b"}', " " * 2_000_000, "[" * 100_000, "{}"],
    ids=["nothing", "a list", "null", "no JSON", "a key twice", "length", "depth", "no fields"],
)
def test_unreadable_application_fails(text: str) -> None:
    assert environment_check(text, RELEASE, is_running=True).verdict is Verdict.FAILED


@pytest.mark.parametrize(
    "name",
    [
        "ATTESTATION__KEY_ORIGIN",
        "attestation__key_origin",
        "SIGNAL__URL",
        "LLM__BASE_URL",
        "STORE__KEY",
        "ACCESS__ADMINS",
        "MCP__SERVERS__X__COMMAND",
        "MCP__SERVERS__X__ENV__PATH",
        "LLM__API_KEY__BASE_URL",
        "llm__api_key",
        "LLM__API_KEY ",
        "LLM__API_KEY\n",
        "MCP__SERVERS__\u00dc__TOKEN",
        "MCP__SERVERS__X__COMMAND__TOKEN",
        "LD_PRELOAD",
        "COMPOSE_FILE",
        "HTTPS_PROXY",
        "ANYTHING_ELSE",
        "",
    ],
)
def test_operator_may_not_set_unknown_names_or_those_a_proof_needs(name: str) -> None:
    check = checked(allowed_envs=["LLM__API_KEY", name])
    assert check.verdict is Verdict.FAILED
    assert f"allowed_envs has {shown(name)}," in check.message


def test_operator_may_set_only_settings_that_exist() -> None:
    theirs = {name for name in setting_names() if FROM_OUTSIDE.fullmatch(name)}
    assert theirs == {
        "SIGNAL__PHONE_NUMBER",
        "LLM__API_KEY",
        "LLM__TRANSCRIPTION_KEY",
        "LLM__SPEECH_KEY",
        "LLM__ACCESS_KEY_ID",
        "LLM__SECRET_ACCESS_KEY",
        "LLM__SESSION_TOKEN",
        "LLM__MODELS__NAME__API_KEY",
        "LLM__MODELS__NAME__ACCESS_KEY_ID",
        "LLM__MODELS__NAME__SECRET_ACCESS_KEY",
        "LLM__MODELS__NAME__SESSION_TOKEN",
        "TOOLS__WEB_SEARCH__API_KEY",
        "ACCESS__ALLOWED",
        "MCP__SERVERS__NAME__TOKEN",
        "HEALTH__LISTEN",
        "LOG__LEVEL",
        "LOG__FORMAT",
    }


@pytest.mark.parametrize(
    "names",
    ["LLM__API_KEY", ["LLM__API_KEY"] * 1001, {"LLM__API_KEY": "x"}, [["LLM__API_KEY"]]],
    ids=["a text", "a thousand and one", "an object", "a list in a list"],
)
def test_malformed_list_of_variables_fails(names: object) -> None:
    assert checked(allowed_envs=names).verdict is Verdict.FAILED
