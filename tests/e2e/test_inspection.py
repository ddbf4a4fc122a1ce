"""No process looks into the bot, not even its children with its user."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import world
from tests.fakes import signal_cli_program
from tests.fakes.service_runner import descendants
from tests.fakes.signal_side import BOT
from tests.fakes.spy import Report, read_report

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these walls")

SECRETS: Final = {
    "LLM__API_KEY": "sk-not-to-be-seen",
    "STORE__KEY": "a key that nobody may see",
    "TOOLS__WEB_SEARCH__API_KEY": "brave-not-to-be-seen",
}
FOR_THE_SERVER: Final = "for the server alone"
SPY: Final = (sys.executable, "-m", "tests.fakes.spy")
REPORT_SECONDS: Final = 15.0


def as_anybody() -> tuple[str, ...]:
    """Return a command prefix that drops root's privileges; empty for other users."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root looks into everything, and setpriv is not installed")
    return (setpriv, "--bounding-set=-all", "--inh-caps=-all")


async def report_in(file: Path) -> Report:
    async with asyncio.timeout(REPORT_SECONDS):
        while (report := read_report(file)) is None:  # noqa: ASYNC110 - it tells nobody here
            await asyncio.sleep(0.02)
    return report


@asynccontextmanager
async def spied_on_bot(folder: Path) -> AsyncIterator[tuple[Daemon, list[Report]]]:
    """Run a bot with secrets, an MCP server and a signal-cli of its own; both are spies."""
    programs = signal_cli_program.install(folder / "bin")
    real = (programs / "signal-cli").rename(programs / "real")
    script = programs / "signal-cli"
    spy = " ".join(SPY)
    script.write_text(f'#!/bin/sh\nexec {spy} $PPID {folder}/signal-cli.json {real} "$@"\n')
    script.chmod(0o700)
    async with world() as here:
        settings = environment(
            here,
            **SECRETS,
            SIGNAL__URL="spawn:",
            SIGNAL__PHONE_NUMBER=BOT.number,
            MCP__SERVERS__SPY__COMMAND=(
                f"{spy} 0 {folder}/server.json {sys.executable} -m tests.fakes.mcp_notes notes"
            ),
            MCP__SERVERS__SPY__ENV__TOKEN=FOR_THE_SERVER,
            PATH=f"{programs}:{os.environ['PATH']}",
        )
        async with daemon(settings, folder=here.folder, through=as_anybody()) as bot:
            await bot.event("app.started")
            reports = [
                await report_in(folder / f"{name}.json") for name in ("signal-cli", "server")
            ]
            yield bot, reports


async def test_a_child_of_the_bot_reads_neither_its_memory_nor_its_secrets(tmp_path: Path) -> None:
    async with spied_on_bot(tmp_path) as (bot, reports):
        for report in reports:
            assert report.succeeded == []
            assert "process_vm_readv" in report.refused
            assert report.descriptors == []
            assert not [name for name in report.environment if "__" in name]
            assert not mentions_a_secret(f"{report.environment}{report.command_line}")
        of_signal_cli, of_the_server = (report.environment for report in reports)
        assert of_the_server["TOKEN"] == FOR_THE_SERVER
        assert FOR_THE_SERVER not in of_signal_cli.values()
        for pid in (bot.pid, *descendants(bot.pid)):
            for name in ("environ", "cmdline"):
                assert not mentions_a_secret(what_root_reads(Path(f"/proc/{pid}/{name}")))


def mentions_a_secret(text: str) -> bool:
    return any(secret in text for secret in SECRETS.values())


def what_root_reads(file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="replace")
    except PermissionError:  # these tests do not run as root
        return ""


def test_any_command_is_closed_before_it_reads_its_settings(tmp_path: Path) -> None:
    program = (
        "import ctypes, os; from bot.cli.main import main; code = main(['ready']);"
        "print(code, ctypes.CDLL(None).prctl(3), os.environ.get('STORE__KEY'))"  # PR_GET_DUMPABLE
    )
    settings = {"SIGNAL__PHONE_NUMBER": BOT.number, "HEALTH__LISTEN": "", **SECRETS}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=settings, capture_output=True, check=True
    )
    assert done.stdout.split() == [b"2", b"0", b"None"]
    assert done.stderr.startswith(b"HEALTH__LISTEN: is empty")  # so the settings were found


async def test_the_same_spy_looks_into_a_program_that_is_not_closed(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    through = as_anybody()
    victim = await asyncio.create_subprocess_exec(
        *through, sys.executable, "-c", "input()", stdin=subprocess.PIPE, env={**SECRETS}
    )
    try:
        spy = await asyncio.create_subprocess_exec(*through, *SPY, str(victim.pid), file)
        assert await spy.wait() == 0
        succeeded = (await report_in(file)).succeeded
        assert "environ" in succeeded
        assert yama_restricts() or {"mem", "process_vm_readv", "ptrace"} <= set(succeeded)
    finally:
        victim.kill()
        await victim.wait()


def yama_restricts() -> bool:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return scope.exists() and scope.read_text().strip() != "0"
