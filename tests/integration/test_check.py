"""Findings of `check` about the machine and the account, and its output."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from bot import __version__
from bot.cli.basic_findings import MIN_FREE_BYTES, Finding, Severity, file_rights
from bot.cli.check import findings
from bot.config.loading import load_settings, setting_names
from bot.config.settings import Settings
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import World, running_bot, world
from tests.fakes.openai_server import status
from tests.fakes.web_server import answer, web_server

ACCOUNT: Final = {"SIGNAL__PHONE_NUMBER": "+4915100000000", "SIGNAL__URL": "unix:/nowhere"}
QUICK: Final = {
    **ACCOUNT,
    "LLM__BASE_URL": "http://127.0.0.1:9/v1",
    "HEALTH__LISTEN": "",
    "TOOLS__ENABLED": "false",
}


LIKE_ANYBODY: Final = (
    ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
)
"""Drops root's capabilities to read every file."""


def without_tools(here: World, **sections: Mapping[str, object]) -> Settings:
    """Return settings of a bot without tools, which is checked quickly."""
    return here.settings(tools={"enabled": False}, **sections)


async def report(settings: Settings) -> dict[str, Finding]:
    return {finding.part: finding async for finding in findings(settings)}


def run_check(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return run_program("check", *arguments, **how)


def run_program(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    answers: str = "",
    stdout: int = subprocess.PIPE,
    before: str = "true",
    through: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a command of the program to its end, after `before` and wrapped in `through`.

    `answers` are typed.
    """
    clean = {name: value for name, value in os.environ.items() if name not in setting_names()}
    words = [*through, sys.executable, "-m", "bot", *arguments]
    return subprocess.run(
        ["/bin/sh", "-c", f'{before} && exec "$0" "$@"', *words],
        cwd=folder,
        env={**clean, **environment},
        input=answers,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


# The machine


def test_check_warns_where_other_users_may_read_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        folder, secrets = Path(name), Path(name) / "credentials"
        secrets.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(secrets))
        settings = load_settings({"signal": {"phone_number": ACCOUNT["SIGNAL__PHONE_NUMBER"]}})
        files = [folder / ".env", secrets / "llm__api_key", secrets / "notes"]
        for file in files:
            file.write_text("")
        changes = {0o644: (0o755, 0o755), 0o640: (0o755, 0o755), 0o604: (0o750, 0o755)}
        said = []
        for mode, (outer, inner) in changes.items():
            for file in files:
                file.chmod(mode)
            folder.chmod(outer)
            secrets.chmod(inner)
            said.append(file_rights(settings))
    readable, closed, out_of_reach = said
    words = f"Every user of this machine may read .env, {secrets / 'llm__api_key'}: chmod o-r."
    assert readable == Finding("file rights", words, "warning")
    assert closed.verdict is out_of_reach.verdict == "ok"


def test_check_names_missing_walls(tmp_path: Path) -> None:
    without = (sys.executable, "-m", "tests.fakes.lacking_machine", "seccomp")
    settings = {**QUICK, "SANDBOX": "required"}
    done = run_check("--json", folder=tmp_path, environment=settings, through=without)
    found = finding_of(done, "sandboxes")
    assert found["verdict"] == "failed"
    assert found["words"].startswith(
        "This needs a sandbox, and this machine cannot wall one off: it lacks seccomp"
    )


def finding_of(done: subprocess.CompletedProcess[str], part: str) -> dict[str, str]:
    findings: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    [found] = [finding for finding in findings if finding["part"] == part]
    return found


@pytest.mark.parametrize("name", [".env", "credentials/STORE__KEY"])
def test_settings_that_cannot_be_read_are_named_and_never_count_as_unset(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / ".env").write_text("LLM__MODEL=sesame\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "STORE__KEY").write_text("sesame\n")
    (tmp_path / name).chmod(0)
    environment = {**QUICK, "CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")}
    done = run_check(folder=tmp_path, environment=environment, through=LIKE_ANYBODY)
    (tmp_path / name).chmod(0o700)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{name}: cannot be read: Permission denied\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_folders_that_are_closed_are_findings_and_the_others_follow(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "store").mkdir(parents=True)
    closed.chmod(0)
    environment = {
        **QUICK,
        "SIGNAL__DATA_DIR": str(closed / "signal-cli"),
        "STORE__PATH": str(closed / "store" / "conversations.db"),
    }
    done = run_check("--json", folder=tmp_path, environment=environment, through=LIKE_ANYBODY)
    closed.chmod(0o700)
    assert (done.returncode, done.stderr) == (1, "")
    found = {one["part"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["store"]["verdict"] == "failed"
    assert found["store"]["words"].startswith("STORE__PATH: ")
    assert found["store"]["words"].endswith("Permission denied.")
    assert found["attachments"]["verdict"] == "warning"
    assert {"signal", "disk", "health", "descriptors"} <= found.keys()


async def test_check_names_version_disk_files_and_leftovers_next_to_the_store() -> None:
    async with world() as here:
        found = await report(without_tools(here))
        assert found["version"].words.startswith(f"signal-tee-bot {__version__}, commit ")
        assert re.fullmatch(r"[\d,]+ [KMG]iB free; the store takes 0 bytes\.", found["disk"].words)
        assert found["descriptors"].verdict == "ok"
        assert "copies" not in found
        free = os.statvfs(here.folder).f_bavail * os.statvfs(here.folder).f_frsize
        with (here.folder / "store.db-wal").open("wb") as sparse:
            sparse.truncate(max(free, MIN_FREE_BYTES) + 2**30)
        (here.folder / "store.db").mkdir()  # so that nothing opens the log
        (here.folder / "store.db.replaced-1").touch()
        found = await report(without_tools(here))
    assert found["copies"].verdict == found["disk"].verdict == "warning"
    assert found["copies"].words.startswith("store.db.replaced-1 next to the store")
    assert "STORE__PATH" in found["disk"].words


# The health address


async def test_check_knows_the_running_bot_at_the_health_address_from_another_program() -> None:
    async with world() as here, web_server({"/healthz": answer(b"fine")}) as other:
        listen = await free_address()
        settings = without_tools(here, health={"listen": listen})
        free = (await report(settings))["health"]
        async with running_bot(settings):
            running = (await report(settings))["health"]
        elsewhere = without_tools(here, health={"listen": f"{other.host}:{other.port}"})
        taken = (await report(elsewhere))["health"]
        off = (await report(without_tools(here)))["health"]
    assert free == Finding("health", f"HEALTH__LISTEN is free: {listen}.", "ok")
    assert running == Finding("health", f"Answered by the running bot at {listen}.", "ok")
    assert taken.verdict == "failed"
    assert taken.words.startswith("HEALTH__LISTEN: ")
    assert off == Finding("health", "Not served: HEALTH__LISTEN is empty.", "ok")


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("localhost", "ok"),
        ("0.0.0.0", "warning"),
        ("[::]", "warning"),
    ],
)
async def test_check_warns_where_other_machines_may_ask_for_health(
    host: str, verdict: Severity
) -> None:
    async with world() as here:
        found = await report(without_tools(here, health={"listen": f"{host}:0"}))
    assert found["health"].verdict is verdict
    assert ("HEALTH__LISTEN=127.0.0.1:8081" in found["health"].words) == (verdict == "warning")


async def free_address() -> str:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
    return f"{host}:{port}"


# The clock


def clock(**there: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(**there), usegmt=True)


@pytest.mark.parametrize(
    ("date", "verdict", "words"),
    [
        (clock, "ok", "Agrees"),
        (partial(clock, hours=-1), "warning", "seconds ahead of that of the model's endpoint"),
        (partial(clock, days=400), "warning", "seconds behind that of the model's endpoint"),
        (str, None, ""),
        (lambda: "yesterday", None, ""),
    ],
)
async def test_check_compares_the_clock_with_that_of_the_models_endpoint(
    date: Callable[[], str], verdict: Severity | None, words: str
) -> None:
    async with world() as here:
        here.model.models_handler = status(200, {"data": [{"id": "fake"}]}, {"Date": date()})
        found = await report(without_tools(here))
    assert found["model"].verdict == "ok"
    if verdict is None:
        assert "clock" not in found
    else:
        assert found["clock"].verdict is verdict
        assert words in found["clock"].words


# The account


async def test_check_counts_linked_devices() -> None:
    async with world() as here:
        alone = (await report(without_tools(here)))["linked devices"]
        here.signal.device_ids = [1, 2, 3]
        shared = (await report(without_tools(here)))["linked devices"]
        missing = await report(without_tools(here, signal={"phone_number": "+4915100000099"}))
    assert alone.words.startswith("None: ")
    assert shared.verdict == "ok"
    assert shared.words.startswith("2, with the account's key")
    assert "linked devices" not in missing
    assert missing["account"].verdict == "failed"


async def test_check_warns_of_linked_devices_where_the_bot_has_something_to_prove() -> None:
    async with proving_world() as proving:
        proving.here.signal.device_ids = [1, 2]
        settings = proving.settings("off")
        found = {one.part: one async for one in findings(settings, trust=proving.trust)}
    assert found["linked devices"].verdict == "warning"
    assert "the bot's proof fails" in found["linked devices"].words


# The output


def test_check_for_programs_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    done = run_check("--json", folder=tmp_path, environment=QUICK, before="ulimit -n 256")
    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr, said["ok"]) == (1, "", False)
    assert {finding["verdict"] for finding in said["findings"]} == {"ok", "warning", "failed"}
    assert all(set(finding) == {"part", "verdict", "words"} for finding in said["findings"])
    few = finding_of(done, "descriptors")
    assert (few["verdict"], "LimitNOFILE=" in few["words"]) == ("warning", True)
    assert list(tmp_path.iterdir()) == []

    done = run_check("--json", folder=tmp_path, environment={**QUICK, "LOG__LEVEL": "loud"})
    said = json.loads(done.stdout)
    assert (done.returncode, said["ok"]) == (2, False)
    [finding] = said["findings"]
    assert (finding["part"], finding["verdict"]) == ("settings", "failed")
    assert finding["words"] == done.stderr.rstrip("\n")
    assert "LOG__LEVEL" in finding["words"]


def test_an_unwritable_output_is_reported_in_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_check(folder=tmp_path, stdout=full.fileno(), environment=QUICK)
    assert done.returncode == 1
    assert done.stderr == "signal-tee-bot: the output cannot be written: No space left on device\n"
