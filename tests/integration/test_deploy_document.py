"""docs/DEPLOY.md does what it says: its commands work, and its numbers are those of the program.

`test_documents.py` checks commands, settings and links of all pages.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from bot import app
from bot.cli.exit_codes import WRONG_SETTINGS
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import world
from tests.fakes.notify_socket import notify_socket

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCUMENT: Final = (ROOT / "docs" / "DEPLOY.md").read_text()
WORDS: Final = " ".join(DOCUMENT.split())
CHECKLIST: Final = (DEPLOY / "CHECKLIST.md").read_text()
SIGNAL_CLI: Final = (DEPLOY / "container" / "signal-cli.Dockerfile").read_text()
PROGRAM: Final = "signal-tee-bot"
USERS: Final = (PROGRAM, "signal-cli")
UNITS: Final = (*USERS, "signal-cli-alive")


def blocks(text: str = DOCUMENT) -> list[list[str]]:
    """What is to be typed, block by block, without comments; a line that goes on is one."""
    shells = re.findall(r"```sh\n(.*?) *```", text, re.DOTALL)
    lines = [re.sub(r"\\\n *", "", shell).splitlines() for shell in shells]
    return [[re.sub(r" +#.*", "", line).strip() for line in block] for block in lines]


def installing() -> list[str]:
    """The commands that install the bot on a server."""
    [block] = [block for block in blocks() if "python3 -m venv" in block[0]]
    return block


def containers() -> list[str]:
    """The commands that start it in containers."""
    [block] = [block for block in blocks() if block[0] == "make image"]
    return block


# A server with systemd


def test_ten_commands_put_everything_where_the_units_and_the_command_look(tmp_path: Path) -> None:
    assert len(installing()) == 10
    assert "in ten commands" in DOCUMENT
    for folder in ("etc/systemd/system", "etc/credstore", "etc/signal-tee-bot", "usr/local/bin"):
        (tmp_path / folder).mkdir(parents=True)
    made_elsewhere = re.compile(r"/opt/signal-tee-bot|systemd-sysusers|systemctl")
    for line in installing():
        if made_elsewhere.search(line):
            continue
        here = re.sub(r"(?<= )/(?=etc/|usr/)", f"{tmp_path}/", line)
        here = here.replace(f"-g {PROGRAM} ", "").replace(
            'systemd-ask-password "API key:"', "echo k"
        )
        done = subprocess.run(
            ["sh", "-ec", here], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), line
    for name in UNITS:
        assert (tmp_path / "etc/systemd/system" / f"{name}.service").is_file()
        assert (tmp_path / "etc/sysusers.d/signal-tee-bot.conf").is_file()
        assert (tmp_path / "etc/tmpfiles.d/signal-tee-bot.conf").is_file()
    unit = (DEPLOY / "systemd" / "signal-tee-bot.service").read_text()
    secrets = list((tmp_path / "etc/credstore").iterdir())
    assert len(secrets) == 2
    for secret in secrets:
        assert f"LoadCredential={secret.name.partition('.')[2]}:{secret.name}\n" in unit
        assert (secret.stat().st_mode & 0o777, bool(secret.read_text())) == (0o600, True)
    assert "WorkingDirectory=/etc/signal-tee-bot\n" in unit
    assert (tmp_path / "etc/signal-tee-bot/.env").stat().st_mode & 0o777 == 0o640
    alive = (DEPLOY / "systemd" / "signal-cli-alive.service").read_text()
    assert "ExecStart=/usr/local/bin/signal-cli-alive " in alive
    for program in (PROGRAM, "signal-cli-alive"):
        assert (tmp_path / "usr/local/bin" / program).stat().st_mode & 0o111


def test_programs_are_installed_where_the_units_start_them() -> None:
    unit, signal_cli = ((DEPLOY / "systemd" / f"{name}.service").read_text() for name in USERS)
    assert installing()[0].endswith(" /opt/signal-tee-bot")
    assert "ExecStart=/opt/signal-tee-bot/bin/signal-tee-bot run\n" in unit
    [unpacking] = [block for block in blocks() if "Linux-native" in " ".join(block)]
    assert unpacking[-1] == "/opt/signal-cli/bin/signal-cli --version"
    assert "ExecStart=/opt/signal-cli/bin/signal-cli --config" in signal_cli


def test_the_version_of_signal_cli_is_the_one_that_the_image_has() -> None:
    [version] = re.findall(r"^ARG VERSION=(.+)$", SIGNAL_CLI, re.MULTILINE)
    assert set(re.findall(r"signal-cli[- ]v?(\d+\.\d+\.\d+)", DOCUMENT + CHECKLIST)) == {version}


def test_times_and_codes_are_those_of_the_program_and_its_unit() -> None:
    unit = (DEPLOY / "systemd" / "signal-tee-bot.service").read_text()
    assert f"finish for {app.BOUNDS.grace_seconds:g} seconds" in WORDS
    assert f"tried again for {app.BOUNDS.stuck_seconds / 60:g} minutes" in WORDS
    [watchdog] = re.findall(r"^WatchdogSec=(\d+)$", unit, re.MULTILINE)
    assert f"hangs for {watchdog} seconds" in WORDS
    assert f"(exit {WRONG_SETTINGS})" in WORDS
    assert f"\nRestartPreventExitStatus={WRONG_SETTINGS}\n" in unit
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_as_locked_in_as_the_document_says(name: str) -> None:
    [most] = re.findall(r"says at most (\d\.\d)", DOCUMENT)
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", DEPLOY / "systemd" / f"{name}.service"],
        capture_output=True,
        text=True,
        check=True,
    )
    [level] = re.findall(r"exposure level for \S+: (\d+\.\d)", judged.stdout)
    assert float(level) <= float(most)


def resident_bytes(pid: int) -> int:
    [kilobytes] = re.findall(
        r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    return int(kilobytes) * 1024


async def test_the_status_line_is_the_one_that_is_shown_and_the_memory_what_is_said() -> None:
    [shown] = re.findall(r'^ +Status: "(.*)"$', DOCUMENT, re.MULTILINE)
    [megabytes] = re.findall(r"about (\d+) MB for the bot", WORDS)
    async with world() as here, notify_socket(here.folder / "notify") as manager:
        settings = environment(here, NOTIFY_SOCKET=manager.address)
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("hello")
            await here.answer()
            await manager.until(lambda: shown in manager.statuses)
            taken = resident_bytes(bot.pid)
    assert taken <= int(megabytes) * 10**6


# A server with containers


def test_the_compose_file_is_started_as_its_own_first_lines_say() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    head = [line.removeprefix("#   ") for line in compose.splitlines() if line.startswith("#   ")]
    said = [re.sub(r" +#.*", "", line) for line in head]
    there = [part for line in said for part in line.split(" && ")]
    here = [part for line in containers() for part in line.split(" && ")]
    assert [line for line in here if line in there] == there


def test_every_secret_of_the_compose_file_is_made_for_the_images_user() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    files = {secret["file"] for secret in compose["secrets"].values()}
    typed = "\n".join(containers())
    assert set(re.findall(r"> (secrets/\w+)", typed)) == files
    [user] = re.findall(r"chown (\d+) secrets", typed)
    assert f"\nUSER {user}:" in (DEPLOY / "container" / "Dockerfile").read_text()
    volumes = re.findall(r"in the volumes `(\w+)` and `(\w+)`", WORDS)
    assert set(*volumes) <= compose["volumes"].keys()
    assert {"bot", "signal-cli"} == compose["services"].keys()
