"""deploy/dstack-compose.yaml: what runs in the enclave is closed, and its settings are written."""

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bot.attestation.app_compose import PINNED, images_of
from bot.attestation.release import Release, environment_check
from bot.cli.main import main
from bot.config.loading import settings_of
from bot.config.settings import Settings
from scripts.release import COMPOSE_FILE, make_release
from tests.fakes.some_pins import SOME_PINS_TEXT

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / COMPOSE_FILE).read_text()
SERVICES: Final[dict[str, Any]] = yaml.safe_load(TEXT)["services"]
BOT: Final = SERVICES["bot"]
SOCKET: Final = "/var/run/dstack.sock"

every_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())


def targets(service: dict[str, Any]) -> set[str]:
    """Where in a service's root its volumes are."""
    volumes = service.get("volumes", [])
    return {one["target"] if isinstance(one, dict) else one.split(":")[1] for one in volumes}


def settings() -> Settings:
    """The bot's settings as they are written, with a number, which comes from outside."""
    written = {name: value for name, value in BOT["environment"].items() if "$" not in value}
    return settings_of(written | {"SIGNAL__PHONE_NUMBER": "+15550100000"})


# Closed


@every_service
def test_images_are_placeholders_until_a_release_names_them(
    service: dict[str, Any],
) -> None:
    image = service["image"]
    assert image.endswith("@sha256:unreleased")
    assert not PINNED.fullmatch(image)
    assert "$" not in image  # so no environment can name another
    assert "build" not in service
    assert "/" not in image  # nor does the file name a registry


@every_service
def test_nothing_can_be_reached_from_outside(service: dict[str, Any]) -> None:
    assert service.keys().isdisjoint({"ports", "expose", "network_mode", "networks", "links"})


@every_service
def test_every_service_has_few_rights_and_a_root_that_it_cannot_write(
    service: dict[str, Any],
) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.keys().isdisjoint({"cap_add", "devices", "pid", "privileged", "user"})
    assert service["pids_limit"] in {256, 512}  # the bot's commands need some
    assert service["mem_limit"] in {"1g", "2g"}


def test_logs_are_bounded_and_output_of_signal_cli_is_dropped() -> None:
    assert SERVICES["signal-cli"]["logging"] == {"driver": "none"}
    for name in ("register", "bot"):
        assert SERVICES[name]["logging"]["options"].keys() == {"max-size", "max-file"}


def test_the_services_share_socket_and_files_as_those_on_a_server_do() -> None:
    on_a_server = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    for name in ("bot", "signal-cli"):
        theirs = on_a_server["services"][name]
        assert targets(theirs) <= targets(SERVICES[name])
        assert theirs["tmpfs"] == SERVICES[name]["tmpfs"]
        for limit in ("mem_limit", "pids_limit", "stop_grace_period"):
            assert theirs[limit] == SERVICES[name][limit]
    assert on_a_server["volumes"].keys() == yaml.safe_load(TEXT)["volumes"].keys()


def test_the_guest_agent_whose_keys_open_the_store_is_there_for_the_bot_alone() -> None:
    assert [name for name, service in SERVICES.items() if SOCKET in str(service)] == ["bot"]
    [mount] = [one for one in BOT["volumes"] if isinstance(one, dict)]
    assert (mount["source"], mount["target"]) == (SOCKET, SOCKET)
    assert mount["bind"] == {"create_host_path": False}  # no agent, no start
    assert settings().attestation.dstack_socket == Path(SOCKET)


def test_nothing_but_the_guest_agent_comes_from_the_machine_s_own_disk() -> None:
    volumes = yaml.safe_load(TEXT)["volumes"]
    for service in SERVICES.values():
        short = [one.split(":")[0] for one in service.get("volumes", []) if isinstance(one, str)]
        assert set(short) <= volumes.keys()
    assert set(volumes.values()) == {None}


def test_health_and_metrics_stay_in_the_bot_s_container() -> None:
    assert settings().health.listen.startswith("127.0.0.1:")


# What people rely on is written down


def test_the_settings_that_people_rely_on_are_written_and_strict() -> None:
    written = {name for name, value in BOT["environment"].items() if "$" not in value}
    assert written >= {
        "ACCESS__POLICY",
        "ATTESTATION__DSTACK_SOCKET",
        "ATTESTATION__E2EE",
        "ATTESTATION__KEY_ORIGIN",
        "ATTESTATION__MODEL_PINS",
        "ATTESTATION__MODEL_POLICY",
        "HEALTH__LISTEN",
        "LLM__BASE_URL",
        "LLM__MODEL",
        "LOG__LEVEL",
        "SIGNAL__TRUST",
        "SIGNAL__URL",
        "STORE__KEY_SOURCE",
        "STORE__PATH",
        "STORE__RETENTION_DAYS",
    }
    chosen = settings()
    assert chosen.attestation.model_policy == "require"
    assert chosen.attestation.e2ee
    assert chosen.attestation.key_origin == "generated-in-tee"
    assert chosen.store.key_source == "dstack"
    assert not chosen.store.key_may_be_lost
    assert chosen.log.level == "info"


def test_only_secrets_the_number_and_who_may_talk_come_from_outside() -> None:
    outside = {name for name, value in BOT["environment"].items() if "$" in value}
    assert outside == {
        "ACCESS__ALLOWED",
        "LLM__API_KEY",
        "SIGNAL__PHONE_NUMBER",
        "TOOLS__WEB_SEARCH__API_KEY",
    }
    for name in outside:
        assert BOT["environment"][name] == f"${{{name}}}"
    assert set(re.findall(r"\$\{(\w+)\}", TEXT)) - outside == {"SIGNAL_CAPTCHA", "SIGNAL_CODE"}
    assert TEXT.count("$") == len(re.findall(r"\$\{\w+\}", TEXT))


def test_the_check_of_the_environment_finds_nothing_that_is_left_to_the_operator(
    tmp_path: Path,
) -> None:
    measured = tmp_path / "measured.json"
    registers = ("mrtd", "rtmr0", "rtmr1", "rtmr2")
    measured.write_text(json.dumps(dict.fromkeys(registers, "00" * 48)))
    pins = tmp_path / "model-pins.json"
    pins.write_text(SOME_PINS_TEXT)
    images = {"signal-tee-bot": f"a@sha256:{'0' * 64}", "signal-cli": f"b@sha256:{'1' * 64}"}
    said = make_release(
        Namespace(
            directory=tmp_path / "release",
            compose=ROOT / COMPOSE_FILE,
            image=[f"{name}={image}" for name, image in images.items()],
            os=[f"one={measured}"],
            kms_id=["aa"],
            commit="0123abcd",
            app_compose=None,
            model_pins=pins,
        )
    )
    app_compose = (tmp_path / "release" / "app-compose.json").read_text()
    release = Release.parse((tmp_path / "release" / "release.json").read_bytes())
    check = environment_check(app_compose, release, is_running=True)
    assert check.verdict == "not checked"  # people read what the variables are
    assert "ACCESS__ALLOWED, LLM__API_KEY" in check.message
    assert check.message.endswith(
        "the operator has chosen LLM__MODEL=openai/gpt-oss-120b, STORE__RETENTION_DAYS=30,"
        " ACCESS__ADMINS=, which is measured"
    )
    assert check.message in said
    assert set(images_of(app_compose)) == set(images.values())


# Together they work


def test_the_socket_and_the_files_of_signal_cli_are_where_the_bot_looks_for_them() -> None:
    chosen = settings()
    path = Path(chosen.signal.url.removeprefix("unix:"))
    for name in SERVICES:
        assert str(path.parent) in targets(SERVICES[name])
    assert chosen.signal.data_dir is not None
    assert str(chosen.signal.data_dir) in targets(BOT) & targets(SERVICES["signal-cli"])
    assert str(chosen.store.path.parent) in targets(BOT)
    assert SERVICES["register"]["environment"]["SIGNAL__URL"] == chosen.signal.url


def test_bot_waits_for_the_unattended_registration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    register = SERVICES["register"]
    assert BOT["depends_on"] == {"register": {"condition": "service_completed_successfully"}}
    assert (register["restart"], register["image"]) == ("no", BOT["image"])
    command = register["command"]
    given = {"SIGNAL__PHONE_NUMBER", "SIGNAL_CAPTCHA", "SIGNAL_CODE"}
    assert {name for name, value in register["environment"].items() if "$" in value} == given
    assert "--unattended" in command
    with pytest.raises(SystemExit) as left:
        main([*command, "--help"])
    assert left.value.code == 0
    assert {word.partition("=")[0] for word in command if word.startswith("--")} <= set(
        re.findall(r"--[a-z]+", capsys.readouterr().out)
    )
