"""`scripts/release.py` as a publisher runs it, up to the laptop where the release is used."""

import hashlib
import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bot.attestation.app_compose import images_of
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.pins import ModelPins
from bot.attestation.release import Release
from bot.cli.verify import verify
from bot.errors import SettingsError
from scripts.release import COMPOSE_FILE, ReleaseRefused, make_release
from tests.fakes.dstack_agent import SoftAgent
from tests.fakes.soft_tdx import SoftTdx
from tests.fakes.some_pins import SOME_PINS, SOME_PINS_TEXT
from tests.unit.soft_machine import machine

ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final = (ROOT / COMPOSE_FILE).read_text()
BOT_IMAGE: Final = f"somebody/signal-tee-bot@sha256:{'ab' * 32}"
SIGNAL_CLI_IMAGE: Final = f"registry.example:5000/signal-cli:1@sha256:{'cd' * 32}"
KMS_ID: Final = "aa" * 32
"""Id of the key service of a soft machine."""

COMMIT: Final = "0123abcd"
FILES: Final = {"dstack-compose.yaml", "app-compose.json", "release.json"}
CHALLENGE: Final = "blue kettle 14"
PINS: Final = ModelPins.parse(SOME_PINS_TEXT)
PINS_IN_COMPOSE: Final = "'" + PINS.text().replace("'", r"\u0027").replace("$", r"\u0024") + "'"
OUTSIDE: Final = [
    "ACCESS__ALLOWED",
    "LLM__API_KEY",
    "SIGNAL_CAPTCHA",
    "SIGNAL_CODE",
    "SIGNAL__PHONE_NUMBER",
    "TOOLS__WEB_SEARCH__API_KEY",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Publisher's folder: the compose file, and the measurements of a soft machine's system."""
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    agent = SoftAgent(SoftTdx(now=0))
    registers = dict(zip(("rtmr0", "rtmr1", "rtmr2"), agent.rtmrs()[:3], strict=True))
    measured = {name: value.hex() for name, value in {"mrtd": agent.mr_td, **registers}.items()}
    (tmp_path / "measured.json").write_text(json.dumps(measured, indent=2))
    (tmp_path / "model-pins.json").write_text(json.dumps(SOME_PINS, indent=2))
    return tmp_path


def order(folder: Path, **changes: Any) -> Namespace:
    ordered = Namespace(
        directory=folder / "release",
        compose=folder / "compose.yaml",
        image=[f"signal-tee-bot={BOT_IMAGE}", f"signal-cli={SIGNAL_CLI_IMAGE}"],
        os=[f"dstack 0.5.9, 2 CPUs, 4 GB={folder / 'measured.json'}"],
        kms_id=[KMS_ID],
        commit=COMMIT,
        app_compose=None,
        model_pins=folder / "model-pins.json",
    )
    return Namespace(**{**vars(ordered), **changes})


def released(folder: Path, **changes: Any) -> dict[str, str]:
    ordered = order(folder, **changes)
    make_release(ordered)
    return {file.name: file.read_text() for file in ordered.directory.iterdir()}


# What is made


def test_deployed_file_holds_compose_file_images_and_variables(folder: Path) -> None:
    files = released(folder)
    assert files.keys() == FILES
    filled_in = COMPOSE.replace("signal-tee-bot@sha256:unreleased", BOT_IMAGE)
    filled_in = filled_in.replace("signal-cli@sha256:unreleased", SIGNAL_CLI_IMAGE)
    filled_in = filled_in.replace("MODEL_PINS: unreleased", f"MODEL_PINS: {PINS_IN_COMPOSE}")
    assert files["dstack-compose.yaml"] == filled_in
    app = json.loads(files["app-compose.json"])
    assert app.pop("docker_compose_file") == filled_in
    written = yaml.safe_load(filled_in)["services"]["bot"]["environment"]
    assert ModelPins.parse(written["ATTESTATION__MODEL_PINS"]) == PINS
    assert app == {
        "manifest_version": 2,
        "name": "signal-tee-bot",
        "runner": "docker-compose",
        "kms_enabled": True,
        "gateway_enabled": False,
        "local_key_provider_enabled": False,
        "key_provider_id": "",
        "public_logs": False,
        "public_sysinfo": False,
        "allowed_envs": OUTSIDE,
        "no_instance_id": False,
        "secure_time": True,
    }


def test_release_names_hash_system_and_key_service(folder: Path) -> None:
    files = released(folder)
    release = Release.parse(files["release.json"].encode())
    digest = hashlib.sha256(files["app-compose.json"].encode()).hexdigest()
    assert (release.commit, release.compose_hashes) == (COMMIT, [digest])
    assert release.compose_file == files["dstack-compose.yaml"]
    assert images_of(files["app-compose.json"]) == (SIGNAL_CLI_IMAGE, BOT_IMAGE, BOT_IMAGE)
    assert release.kms_ids == [KMS_ID]
    measured = json.loads((folder / "measured.json").read_text())
    [system] = release.os
    assert system.model_dump() == {"label": "dstack 0.5.9, 2 CPUs, 4 GB"} | measured


def test_the_same_input_makes_the_same_bytes_and_a_release_is_never_overwritten(
    folder: Path,
) -> None:
    before = released(folder)
    assert released(folder, directory=folder / "deeper" / "again") == before
    with pytest.raises(SettingsError, match="release: exists; a release is never overwritten"):
        make_release(order(folder, kms_id=["bb"]))
    assert {file.name: file.read_text() for file in (folder / "release").iterdir()} == before


# Proof with a release


async def verdicts(
    folder: Path, app_compose: str, capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """Start an application on a soft machine, and check its bot with the folder's release."""
    async with machine(folder, app_compose=app_compose) as running:
        bundle = await running.evidence.collect(CHALLENGE)
    (folder / "bundle.json").write_bytes(bundle.to_json())
    (folder / "collateral.json").write_text(running.platform.collateral)
    request = Namespace(
        bundle=folder / "bundle.json",
        challenge=CHALLENGE,
        safety_number=None,
        release=folder / "release" / "release.json",
        collateral=[folder / "collateral.json"],
        pccs="http://127.0.0.1:1",
        json=True,
    )
    passed = await verify(request, trust=running.platform.trust, clock=lambda: running.platform.now)
    checks = json.loads(capsys.readouterr().out)["checks"]
    found = {check["name"]: check["verdict"] for check in checks}
    assert passed == ("failed" not in found.values())
    return found


def failures(found: dict[str, str]) -> set[str]:
    return {name for name, verdict in found.items() if verdict == "failed"}


async def test_a_bot_that_was_deployed_from_a_release_is_proven_to_be_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await verdicts(folder, released(folder)["app-compose.json"], capsys)
    assert failures(found) == set()
    proven = {name for name, verdict in found.items() if verdict == "proven"}
    assert proven >= {"compose", "images", "release", "os", "key_provider"}
    assert found["environment"] == "not checked"  # it names what comes from outside


@pytest.mark.parametrize(
    ("written", "instead", "is_published"),
    [
        ("ATTESTATION__MODEL_POLICY: require", "ATTESTATION__MODEL_POLICY: warn   ", False),
        ("ab" * 32, "ab" * 31 + "ac", False),
        ('RETENTION_DAYS: \\"30\\"', 'RETENTION_DAYS: \\"x\\"', False),
        ('RETENTION_DAYS: \\"30\\"', 'RETENTION_DAYS: \\"7\\"', True),
        ('"secure_time": true\n}', '"secure_time": true\n}\n', True),
    ],
    ids=["a setting", "an image", "a wrong value", "another value", "white space"],
)
async def test_only_a_choice_in_a_slot_is_the_published_code(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    written: str,
    instead: str,
    is_published: bool,
) -> None:
    deployed = released(folder)["app-compose.json"]
    assert written in deployed
    found = await verdicts(folder, deployed.replace(written, instead), capsys)
    assert failures(found) == (set() if is_published else {"release"})


# Files of other tools


def made_elsewhere(folder: Path, **changes: Any) -> Path:
    """Write app-compose.json as other tools do: more keys, another order, other white space."""
    ours = json.loads(released(folder, directory=folder / "ours")["app-compose.json"])
    theirs = {"features": ["kms"], "storage_fs": "zfs", "tproxy_enabled": True} | ours | changes
    file = folder / "theirs.json"
    file.write_text(json.dumps(theirs, sort_keys=True))
    return file


async def test_app_compose_of_another_tool_is_released_byte_for_byte(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = made_elsewhere(folder, pre_launch_script="", key_provider="kms")
    files = released(folder, app_compose=theirs)
    assert files["app-compose.json"] == theirs.read_text()
    found = await verdicts(folder, files["app-compose.json"], capsys)
    assert (failures(found), found["release"]) == (set(), "proven")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"docker_compose_file": COMPOSE}, "is not the compose file with these images"),
        ({"pre_launch_script": "echo hello"}, "pre_launch_script has another value"),
        ({"allowed_envs": OUTSIDE[1:]}, "ACCESS__ALLOWED is missing"),
        ({"allowed_envs": [*OUTSIDE, "LOG__LEVEL"]}, "LOG__LEVEL has no place in the compose file"),
        ({"allowed_envs": [*OUTSIDE, "BASH_ENV"]}, "allowed_envs has BASH_ENV, which"),
        ({"kms_enabled": False}, "without a key service"),
    ],
)
def test_app_compose_with_other_contents_is_refused(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    theirs = made_elsewhere(folder, **changes)
    with pytest.raises(ReleaseRefused, match=re.escape(words)):
        make_release(order(folder, app_compose=theirs))
    assert not (folder / "release").exists()


# What is refused


@pytest.mark.parametrize(
    ("written", "instead", "words"),
    [
        ("signal-cli@sha256:unreleased", "signal-cli:latest", "image signal-cli:latest has no"),
        ("signal-cli@sha256:unreleased", "${IMAGE}", "a dollar sign may stand only in a whole"),
        ("    init: true\n", "    build: .\n", "a service is made of more than one image"),
        ("# slot: number", "# slot: numbers", "slot: KIND is expected, of a known kind"),
        ('"30" # slot', '"x" # slot', "slot: KIND is expected, of a known kind"),
        ("ATTESTATION__E2EE:", "ATTESTATON__E2EE:", "did you mean ATTESTATION__E2EE?"),
        ("MODEL_POLICY: require", "MODEL_POLICY: required", "bot: ATTESTATION__MODEL_POLICY: must"),
        ('E2EE: "true"', "E2EE: true", "bot: ATTESTATION__E2EE: a text in quotes is expected"),
        ("https://cloud-api", "http://cloud-api", "needs an LLM__BASE_URL that begins with https"),
        ("LLM__API_KEY: ${LLM__API_KEY}", "LLM__API_KEY: sk-1", "LLM__API_KEY: is a secret"),
        ("MODEL_PINS: unreleased", "MODEL_PINS: /pins.json", "nothing measures a file"),
        (
            "ATTESTATION__MODEL_PINS: unreleased",
            'BOT__READ_RECEIPTS: "true"',
            "MODEL_PINS: is required",
        ),
    ],
)
def test_unfit_compose_file_is_refused(
    folder: Path, written: str, instead: str, words: str
) -> None:
    assert written in COMPOSE
    (folder / "compose.yaml").write_text(COMPOSE.replace(written, instead))
    fitting = slice(1) if written.startswith("signal-cli@") else slice(2)
    pins = None if "MODEL_PINS: unreleased" in written else folder / "model-pins.json"
    with pytest.raises(ReleaseRefused, match=re.escape(words)):
        make_release(order(folder, image=order(folder).image[fitting], model_pins=pins))
    assert not (folder / "release").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": []}, "--image signal-cli=…: is missing\n--image signal-tee-bot=…: is missing"),
        ({"image": ["bot=a@sha256:" + "0" * 64]}, "--image bot: has no open place"),
        ({"image": ["signal-cli=signal-cli:1.0"]}, "--image signal-cli: NAME=REFERENCE@sha256:…"),
        ({"os": ["measured.json"]}, "--os: LABEL=FILE"),
        ({"os": ["2 CPUs=nowhere.json"]}, "nowhere.json: No such file or directory"),
        ({"kms_id": ["aab"]}, "--kms-id: the id in key_provider_info"),
        ({"commit": "main"}, "--commit: commit of the source"),
        ({"app_compose": Path("nowhere.json")}, "nowhere.json: No such file or directory"),
    ],
)
def test_a_wrong_argument_is_named(folder: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as refused:
        make_release(order(folder, **changes))
    assert words in str(refused.value)
    assert not (folder / "release").exists()


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("measured.json", b"{}", "measured.json: expects 96 digits from 0 to f in mrtd, rtmr0"),
        ("measured.json", b"MRTD: 00", "measured.json is not readable"),
        ("measured.json", b" " * 100_000, "measured.json: has more than 65536 bytes"),
        ("compose.yaml", b"services: [", "the compose file is not YAML"),
        ("compose.yaml", b"services: {}", "the Docker Compose file starts nothing"),
        ("compose.yaml", b" " * 200_000, "compose.yaml: has more than 131072 bytes"),
    ],
)
def test_invalid_file_is_reported_in_one_line(
    folder: Path, file: str, content: bytes, words: str
) -> None:
    (folder / file).write_bytes(content)
    without_places: dict[str, Any] = {"image": [], "model_pins": None}
    changes = {} if file == "measured.json" else without_places
    with pytest.raises((MalformedEvidence, ReleaseRefused), match=re.escape(words)):
        make_release(order(folder, **changes))
    assert not (folder / "release").exists()
