"""deploy/dstack-compose.yaml: the enclave is closed, and all its settings are in the file."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bot.attestation.app_compose import PINNED
from bot.cli.main import main
from bot.config.loading import settings_of
from bot.config.settings import Settings
from scripts.release import COMPOSE_FILE

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / COMPOSE_FILE).read_text()
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(TEXT)
SERVICES: Final[dict[str, Any]] = COMPOSE["services"]
BOT: Final = SERVICES["bot"]
SOCKET: Final = "/var/run/dstack.sock"
OUTSIDE: Final = {
    "ACCESS__ALLOWED",
    "LLM__API_KEY",
    "SIGNAL__PHONE_NUMBER",
    "TOOLS__WEB_SEARCH__API_KEY",
}


def targets(service: dict[str, Any]) -> set[str]:
    volumes = service.get("volumes", [])
    return {one["target"] if isinstance(one, dict) else one.split(":")[1] for one in volumes}


@pytest.fixture
def chosen() -> Settings:
    """The bot's settings as they are written, with a number, which comes from outside."""
    written = {name: value for name, value in BOT["environment"].items() if "$" not in value}
    return settings_of(written | {"SIGNAL__PHONE_NUMBER": "+15550100000"})


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES.keys())
def test_every_service_is_closed(service: dict[str, Any]) -> None:
    image = service["image"]
    assert re.fullmatch(r"[a-z-]+@sha256:unreleased", image)
    assert not PINNED.fullmatch(image)
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.keys().isdisjoint(
        {
            "build", "cap_add", "devices", "expose", "links", "network_mode", "networks", "pid",
            "ports", "privileged", "user",
        }
    )  # fmt: skip
    assert {"pids_limit", "mem_limit", "logging"} <= service.keys()
    named = [one.split(":")[0] for one in service.get("volumes", []) if isinstance(one, str)]
    assert set(named) <= COMPOSE["volumes"].keys()


def test_the_bot_s_own_program_alone_has_the_guest_agent_and_needs_it(chosen: Settings) -> None:
    assert set(COMPOSE["volumes"].values()) == {None}
    assert [name for name, service in SERVICES.items() if SOCKET in str(service)] == [
        "register",
        "bot",
    ]
    for service in (SERVICES["register"], BOT):
        [mount] = [one for one in service["volumes"] if isinstance(one, dict)]
        assert (mount["source"], mount["target"]) == (SOCKET, SOCKET)
        assert mount["bind"] == {"create_host_path": False}
    assert chosen.attestation.dstack_socket == Path(SOCKET)


def test_the_settings_that_people_rely_on_are_strict(chosen: Settings) -> None:
    assert chosen.attestation.model_policy == "require"
    assert chosen.attestation.e2ee
    assert chosen.attestation.key_origin == "generated-in-tee"
    assert chosen.store.key_source == "dstack"
    assert not chosen.store.key_may_be_lost
    assert chosen.log.level == "info"
    assert chosen.health.listen.startswith("127.0.0.1:")
    assert {"SIGNAL__TRUST", "STORE__RETENTION_DAYS"} <= BOT["environment"].keys()


def test_only_secrets_number_and_allowed_people_come_from_outside() -> None:
    outside = {name: value for name, value in BOT["environment"].items() if "$" in value}
    assert outside == {name: f"${{{name}}}" for name in OUTSIDE}
    variables = re.findall(r"\$\{(\w+)\}", TEXT)
    assert set(variables) - OUTSIDE == {"SIGNAL_CAPTCHA", "SIGNAL_CODE"}
    assert TEXT.count("$") == len(variables)


def test_the_services_find_each_other_s_files_as_those_on_a_server_do(chosen: Settings) -> None:
    on_a_server = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    for name in ("bot", "signal-cli"):
        theirs = on_a_server["services"][name]
        assert targets(theirs) <= targets(SERVICES[name])
        for limit in ("tmpfs", "mem_limit", "pids_limit", "stop_grace_period"):
            assert theirs[limit] == SERVICES[name][limit]
    path = Path(chosen.signal.url.removeprefix("unix:"))
    assert all(str(path.parent) in targets(service) for service in SERVICES.values())
    assert str(chosen.signal.data_dir) in targets(BOT) & targets(SERVICES["signal-cli"])
    assert str(chosen.store.path.parent) in targets(BOT)


def test_bot_waits_for_the_unattended_registration(capsys: pytest.CaptureFixture[str]) -> None:
    register = SERVICES["register"]
    assert BOT["depends_on"] == {"register": {"condition": "service_completed_successfully"}}
    assert (register["restart"], register["image"]) == ("no", BOT["image"])
    command = register["command"]
    assert "--unattended" in command
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    options = set(re.findall(r"--[a-z]+", capsys.readouterr().out))
    assert {word.partition("=")[0] for word in command if word.startswith("--")} <= options
