"""`signal-tee-bot deploy` with stand-ins for the platforms' command lines, up to `!verify`."""

import asyncio
import io
import json
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Final

import pytest

from bot.attestation.release import with_slot_values
from bot.cli.console import Console
from bot.cli.deploy import deploy, rendered
from bot.errors import BotError, SettingsError
from scripts.release import COMPOSE_FILE, make_release
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import running_bot
from tests.fakes.dstack_agent import SoftAgent, serving
from tests.fakes.platform_program import (
    MACHINE,
    PHALA_APP_ID,
    SCRIPT,
    app_compose_of_phala,
    install,
    state_of,
)
from tests.fakes.soft_bundle import soft_bundle
from tests.fakes.soft_tdx import SoftTdx
from tests.fakes.some_pins import SOME_PINS_TEXT
from tests.processes import run_process

ROOT: Final = Path(__file__).parents[2]
ADMIN: Final = "9d0652a3-dcc3-4d11-975f-74d61598733f"
WORDS: Final = "blue kettle, 14 geese"
CAPTCHA: Final = "signalcaptcha://signal-hcaptcha.5fad97ac-7d06.registration.P1_eyJ0"
SECRETS: Final = {
    "ACCESS__ALLOWED": "",
    "LLM__API_KEY": "sk-a-secret",
    "SIGNAL__PHONE_NUMBER": "+4915112345678",
    "TOOLS__WEB_SEARCH__API_KEY": "another-secret",
}
"""The answers to the questions for secrets, in their order."""
WAIT_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.01


class Operator(io.StringIO):
    """A screen, and the person in front of it, who answers each question at once.

    Args:
        answers: by a word of the question; a function is called at each question.
    """

    def __init__(self, answers: Mapping[str, str | Callable[[], str]]) -> None:
        super().__init__()
        self._answers = answers
        reading, self._typing = os.pipe()
        self.console = Console(reading, self)
        self.challenged = asyncio.Event()

    def write(self, text: str) -> int:
        """Take a text, and answer it if it is a question."""
        if f"!verify {WORDS}" in text:
            self.challenged.set()
        for word, answer in self._answers.items():
            if text.startswith(word):
                said = answer if isinstance(answer, str) else answer()
                os.write(self._typing, f"{said}\n".encode())
        return super().write(text)


def usual_answers(**others: str) -> dict[str, str]:
    answers = {
        **{f"{name}:": value for name, value in SECRETS.items()},
        "Paste": CAPTCHA,
        "The code": "123456",
        "A few words": WORDS,
        "The file": "",
        "The safety number": "",
    }
    return answers | others


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The folder of a release for soft machines."""
    return released(tmp_path)


def released(folder: Path, **changes: Any) -> Path:
    agent = SoftAgent(SoftTdx(now=0))
    names = ("mrtd", "rtmr0", "rtmr1", "rtmr2")
    measured = dict(zip(names, (agent.mr_td, *agent.rtmrs()[:3]), strict=True))
    (folder / "measured.json").write_text(json.dumps({n: v.hex() for n, v in measured.items()}))
    (folder / "model-pins.json").write_text(SOME_PINS_TEXT)
    order = Namespace(
        directory=folder / "release",
        compose=ROOT / COMPOSE_FILE,
        image=[
            f"{name}=example/{name}@sha256:{'ab' * 32}" for name in ("signal-tee-bot", "signal-cli")
        ],
        os=[f"soft={folder / 'measured.json'}"],
        kms_id=["aa" * 32],
        commit="0123abcd",
        app_compose=None,
        model_pins=folder / "model-pins.json",
    )
    make_release(Namespace(**{**vars(order), **changes}))
    return folder / "release"


def order(folder: Path, platform: str = "phala", **changes: Any) -> Namespace:
    usual: dict[str, object] = {
        "platform": platform,
        "release": folder,
        "image": "dstack-0.5.9",
        "name": "signal-tee-bot",
        "set": [f"ACCESS__ADMINS={ADMIN}"],
    }
    own: dict[str, dict[str, object]] = {
        "phala": {"size": "tdx.medium"},
        "dstack": {"cpus": "2", "memory": "4G", "kms_url": "https://kms.example", "vmm_cli": None},
    }
    return Namespace(**{**usual, **own[platform], **changes})


def in_path(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


async def deployed(ordered: Namespace, operator: Operator, **more: Any) -> bool:
    async with asyncio.timeout(WAIT_SECONDS):
        return await deploy(ordered, operator.console, look_seconds=LOOK_SECONDS, **more)


def deployments(program: Path) -> list[dict[str, Any]]:
    return [call for call in state_of(program)["calls"] if "secrets" in call]


# From the release to the first proof


@pytest.mark.parametrize("platform", ["phala", "dstack"])
async def test_one_command_leads_from_a_release_to_a_verified_bot(
    platform: str, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path / "bin", "phala" if platform == "phala" else "vmm-cli.py")
    in_path(monkeypatch, program)
    ordered = order(release, platform)
    _, app_compose = rendered(ordered)
    app_id = None
    if platform == "phala":
        fields = json.loads(app_compose)
        app_compose = app_compose_of_phala(fields["docker_compose_file"], fields["allowed_envs"])
        app_id = PHALA_APP_ID
    proof = tmp_path / "signal-tee-bot-proof.json"
    operator = Operator(usual_answers(**{"The file": str(proof)}))
    async with proving_world() as proving:
        agent = SoftAgent(proving.cloud.platform, app_compose, app_id=app_id)
        async with serving(agent, tmp_path / "dstack.sock") as socket:
            settings = proving.settings("off", attestation={"dstack_socket": socket})
            async with running_bot(settings, trust=proving.trust):
                await proving.here.signal.say(f"!verify {WORDS}")
                [file] = (await proving.here.answer()).attachments
                proof.write_bytes(file.data)
                is_proven = await deployed(
                    ordered, operator, trust=proving.trust, pccs=proving.intel.url("")
                )
    printed = operator.getvalue()
    assert operator.challenged.is_set(), printed
    assert is_proven
    folders = {str(folder) for folder in Path(gettempdir()).iterdir()}  # noqa: ASYNC240
    first, with_captcha, with_code = deployments(program)
    assert f"SIGNAL_CAPTCHA={CAPTCHA}\nSIGNAL_CODE=\n" in with_captcha["secrets"]
    assert f"SIGNAL_CAPTCHA={CAPTCHA}\nSIGNAL_CODE=123456\n" in with_code["secrets"]
    assert "LLM__API_KEY=sk-a-secret\n" in first["secrets"]
    for call in state_of(program)["calls"]:
        assert not any("secret" in word and word != "secrets.env" for word in call["arguments"])
        assert call.get("mode", 0o600) == 0o600
        assert call["folder"] not in folders


def test_chosen_values_stand_in_the_slots_and_nothing_else_changes(release: Path) -> None:
    unchanged = (release / "app-compose.json").read_text()
    assert rendered(order(release, set=[]))[1] == unchanged
    _, chosen = rendered(order(release, set=["STORE__RETENTION_DAYS=7"]))
    assert chosen == unchanged.replace(r"DAYS: \"30\"", r"DAYS: \"7\"")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"set": ["LOG__LEVEL=debug"]}, "--set: the release has no slot LOG__LEVEL, but ACCESS__"),
        ({"set": ["ACCESS__ADMINS=everyone"]}, "--set: the slot ACCESS__ADMINS takes a value of"),
        ({"release": Path("nowhere")}, "nowhere: is not the folder of a release"),
    ],
)
def test_wrong_arguments_are_named(release: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        rendered(order(release, **changes))


def test_changed_app_compose_is_not_deployed(release: Path) -> None:
    file = release / "app-compose.json"
    file.write_text(file.read_text().replace('"public_logs": false', '"public_logs": true'))
    with pytest.raises(SettingsError, match="is not the one of"):
        rendered(order(release))


# Values that the platform shows


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"script": SCRIPT}, "app-compose.json .* pre_launch_script .* --no-pre-launch-script"),
        ({"shown": {"pre_launch_script_hash": "cd" * 32}}, "pre_launch_script is not"),
        ({"shown": {"compose_hash": "cd" * 32}}, "compose hash is not"),
        ({"shown": {"app_id": "0xCD"}}, "app id is not"),
        ({"shown": {"os": {"is_dev": True, "os_image_hash": "0d" * 32}}}, "OS image .is_dev. is"),
        ({"shown": {"os": {"is_dev": False, "os_image_hash": "cd"}}}, "OS image hash is not"),
        ({"measured": {"rtmr0": "cd" * 48}}, "OS measurement is not"),
        ({"measured": {"event_log": []}}, "measured compose hash is not .* shows none"),
        ({"measured": {"app_compose": "{}"}}, "app-compose.json .* has no docker_compose_file"),
    ],
)
async def test_value_that_is_not_the_releases_ends_the_deployment_and_is_named(
    release: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: dict[str, Any],
    words: str,
) -> None:
    program = install(tmp_path / "bin", "phala", **state)
    in_path(monkeypatch, program)
    operator = Operator(usual_answers())
    with pytest.raises(BotError, match=f"^{words}"):
        await deployed(order(release), operator)
    assert f"phala cvms delete {MACHINE} --yes" in operator.getvalue()
    assert "signalcaptchas" not in operator.getvalue()
    assert len(deployments(program)) == 1


async def test_key_service_that_was_not_published_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path(monkeypatch, install(tmp_path / "bin", "phala"))
    ordered = order(released(tmp_path, kms_id=["bb" * 32]))
    with pytest.raises(BotError, match=r"^key service \(KMS\) is not .* shows aaaa"):
        await deployed(ordered, Operator(usual_answers()))


async def test_other_image_of_dstack_is_named(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path(monkeypatch, install(tmp_path / "bin", "vmm-cli.py", shown={"image": "dstack-dev"}))
    operator = Operator(usual_answers())
    with pytest.raises(BotError, match=r"^OS image is not .* shows dstack-dev"):
        await deployed(order(release, "dstack"), operator)
    assert f"vmm-cli.py remove {MACHINE}" in operator.getvalue()


# Refusals


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"logged_in": False}, "not logged in to Phala Cloud. Run `phala login`"),
        ({"options": "--pre-launch-script"}, "npm install --global phala@latest"),
        (
            {"refusal": "Error: Authentication required. Run 'phala login'"},
            "Authentication required.* Run `phala login` first",
        ),
        (
            {"refusal": {"error_code": "ERR-01-004", "message": "a machine has this name"}},
            "ERR-01-004: a machine has this name. Choose another --name",
        ),
        (
            {"refusal": "\nError [ERR-02-002]: No teepod found\n\nSuggestions:\n  - wait\n"},
            "No teepod found. Wait for a free machine",
        ),
        ({"refusal": "Error [ERR-04-001]: \x1b[31mbalance"}, r" \[31mbalance. Add money"),
        ({"refusal": "Error [ERR-02-010]: image"}, "Choose with --image"),
        ({"refusal": {"error": "out of order"}}, "out of order. Put that right"),
    ],
)
async def test_refusal_of_phala_says_what_to_do(
    release: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: dict[str, Any],
    words: str,
) -> None:
    in_path(monkeypatch, install(tmp_path / "bin", "phala", **state))
    with pytest.raises(BotError, match=words):
        await deployed(order(release), Operator(usual_answers()))


async def test_refusals_of_dstack_say_what_to_do(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "Traceback (most recent call last):\n  raise\nEOFError: EOF when reading a line"
    in_path(monkeypatch, install(tmp_path / "bin", "vmm-cli.py", refusal=refusal))
    operator = Operator(usual_answers())
    with pytest.raises(BotError, match="Trust the key service's key first"):
        await deployed(order(release, "dstack"), operator)
    assert "Look at dstack whether a machine exists" in operator.getvalue()
    with pytest.raises(BotError, match="Choose with --image one of"):
        await deployed(order(release, "dstack", image="dstack-1"), Operator(usual_answers()))


async def test_machine_of_dstack_that_does_not_boot_is_named(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path / "bin", "vmm-cli.py", boot_error="failed to get keys from \x1bKMS")
    in_path(monkeypatch, program)
    with pytest.raises(BotError, match="does not start: failed to get keys from  KMS"):
        await deployed(order(release, "dstack"), Operator(usual_answers()))


async def test_command_line_that_does_not_start_is_named(release: Path, tmp_path: Path) -> None:
    program = install(tmp_path / "bin", "vmm-cli.py")
    program.write_text("#!/nowhere/python\n")
    with pytest.raises(BotError, match="does not start: No such file or directory"):
        await deployed(order(release, "dstack", vmm_cli=str(program)), Operator(usual_answers()))


# The walk through registration


async def test_missing_sms_and_missing_answer_lead_back_to_a_fresh_captcha(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path / "bin", "vmm-cli.py")
    in_path(monkeypatch, program)
    codes = iter(["", "123456", "123456"])
    operator = Operator(usual_answers() | {"The code": lambda: next(codes)})
    with pytest.raises(BotError, match="Three captchas did not lead to an account"):
        await deployed(order(release, "dstack"), operator)
    printed = operator.getvalue()
    assert "the captcha was too old" in printed
    assert "the code was wrong or too old" in printed
    assert len(deployments(program)) == 1 + 3 + 2


async def test_value_that_a_file_of_secrets_may_change_is_asked_for_again(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path / "bin", "phala", refusal="Error: enough")
    in_path(monkeypatch, program)
    keys = iter(["a key", "a#key", '"key"', "a-key"])
    operator = Operator(usual_answers() | {"LLM__API_KEY:": lambda: next(keys)})
    with pytest.raises(BotError, match="enough"):
        await deployed(order(release), operator)
    assert operator.getvalue().count("Please leave out spaces") == 3
    assert "LLM__API_KEY=a-key\n" in deployments(program)[0]["secrets"]


async def test_unreadable_file_is_named_and_asked_for_again(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path(monkeypatch, install(tmp_path / "bin", "vmm-cli.py"))
    bundle = tmp_path / "proof.json"
    bundle.write_text("{}")
    files = iter(["nowhere.json", str(bundle), "", "", ""])
    operator = Operator(usual_answers() | {"The file": lambda: next(files)})
    with pytest.raises(BotError, match="Three captchas"):
        await deployed(order(release, "dstack"), operator)
    printed = operator.getvalue()
    assert "nowhere.json: No such file or directory" in printed
    assert "the bundle" in printed


async def test_proof_that_does_not_hold_fails_and_warns(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_path(monkeypatch, install(tmp_path / "bin", "vmm-cli.py"))
    platform = SoftTdx(now=0)
    proof = tmp_path / "proof.json"
    proof.write_bytes(soft_bundle(platform, SoftAgent(platform), WORDS).to_json())
    operator = Operator(usual_answers(**{"The file": str(proof)}))
    assert not await deployed(order(release, "dstack"), operator, pccs="http://127.0.0.1:1")
    assert "The bot is not proven, but it keeps running" in operator.getvalue()


# The file of secrets


@pytest.mark.parametrize("ending", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
async def test_secrets_are_deleted_if_the_deployment_is_ended(
    ending: signal.Signals, release: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    install(tmp_path / "bin", "phala", hang=str(told))
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("signal-tee-bot"),
        *("deploy", "phala", release, "--image", "dstack-0.5.9"),
        env={"PATH": str(tmp_path / "bin")},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        assert process.stdin is not None
        process.stdin.write("".join(f"{value}\n" for value in SECRETS.values()).encode())
        secrets = Path(await asyncio.to_thread(told.read_text))
        assert "LLM__API_KEY=sk-a-secret\n" in await asyncio.to_thread(secrets.read_text)
        process.send_signal(ending)
        printed, errors = await process.communicate()
    assert (errors.decode(), process.returncode) == ("", 130)
    assert "whether a machine exists all the same" in printed.decode()
    assert not await asyncio.to_thread(secrets.parent.exists)


# Without the platform's command line


@pytest.mark.parametrize("platform", ["phala", "dstack"])
async def test_without_its_command_line_the_commands_are_printed(
    platform: str, release: Path, tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("signal-tee-bot")
    keys = ["--kms-url", "https://kms.example"] if platform == "dstack" else []
    chosen = ["--image", "dstack-0.5.9", "--set", f"ACCESS__ADMINS={ADMIN}", *keys]
    printed, errors, code = await run_process(
        program, "deploy", platform, release, *chosen, folder=tmp_path, environment={"PATH": ""}
    )
    assert (errors, code) == ("", 1)
    folder = release / "to-deploy"
    assert f"cd {folder}\n" in printed
    creation = {
        "phala": "phala deploy --name signal-tee-bot --image dstack-0.5.9"
        " --instance-type tdx.medium --kms phala --secure-time --json"
        " --compose dstack-compose.yaml --no-dev-os --no-pre-launch-script"
        " --no-public-logs --no-public-sysinfo -e secrets.env\n",
        "dstack": "vmm-cli.py deploy --name signal-tee-bot --image dstack-0.5.9 --compose"
        " app-compose.json --vcpu 2 --memory 4G --env-file secrets.env --kms-url"
        " https://kms.example\n",
    }
    assert creation[platform] in printed
    published = (release / "dstack-compose.yaml").read_text()
    expected = with_slot_values(published, {"ACCESS__ADMINS": ADMIN})
    assert (folder / "dstack-compose.yaml").read_text() == expected
