"""The program that ends a signal-cli that hangs, where the bot does not start signal-cli itself."""

import asyncio
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.service_runner import DEPLOY, Unit
from tests.fakes.signal_cli_program import install
from tests.integration.test_spawned import until

PROGRAM: Final = DEPLOY.parent / "container" / "signal-cli-alive"
DOCKERFILE: Final = DEPLOY.parent / "container" / "signal-cli.Dockerfile"
PROMISED_SECONDS: Final = 40

pytestmark = pytest.mark.skipif(shutil.which("perl") is None, reason="Perl is not installed")


def install_impatient(folder: Path) -> Path:
    """Write a copy of the program that waits a fraction of the time, and return it."""
    text = PROGRAM.read_text()
    for wait, less in (
        ("$answer_seconds = 8;", "$answer_seconds = 1;"),
        ("$stop_seconds   = 5;", "$stop_seconds = 0.5;"),
        ("sleep $pause;", "select undef, undef, undef, 0.2;"),
    ):
        assert text.count(wait) == 1
        text = text.replace(wait, less)
    program = folder / PROGRAM.name
    program.write_text(text)
    program.chmod(0o700)
    return program


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, because sockets need one."""
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        yield Path(name)


@asynccontextmanager
async def signal_cli(folder: Path, *options: str) -> AsyncIterator[Process]:
    program = install(folder / "bin", *options) / "signal-cli"
    arguments = ("daemon", "--socket", folder / "socket", "--receive-mode", "manual")
    running = await asyncio.create_subprocess_exec(
        program, *arguments, "--no-receive-stdout", stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        await until((folder / "socket").exists)
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def look(folder: Path) -> tuple[int, str]:
    """Run it once; return its exit code and output."""
    program = await asyncio.create_subprocess_exec(
        install_impatient(folder), folder / "socket", stderr=PIPE
    )
    _, said = await program.communicate()
    assert program.returncode is not None
    return program.returncode, said.decode()


async def test_a_signal_cli_that_answers_is_not_restarted(folder: Path) -> None:
    async with signal_cli(folder) as running:
        assert await look(folder) == (0, "")
        assert running.returncode is None


async def test_a_signal_cli_that_lives_and_does_not_answer_is_ended(folder: Path) -> None:
    async with signal_cli(folder) as running:
        os.kill(running.pid, signal.SIGSTOP)
        code, said = await look(folder)
        assert (code, "does not answer" in said) == (1, True)
        assert await running.wait() == -signal.SIGKILL


async def test_silent_socket_is_unhealthy_and_ends_no_process(folder: Path) -> None:
    assert await look(folder) == (1, "")
    (folder / "socket").touch()
    assert await look(folder) == (1, "")


def test_units_and_container_restart_a_hanging_process_within_40_seconds() -> None:
    answer, stop = (
        int(re.findall(rf"\${name}_seconds += (\d+);", PROGRAM.read_text())[0])
        for name in ("answer", "stop")
    )
    looks = 2 * answer + stop
    unit = Unit.read("signal-cli-alive", Path("/"))
    pause = int(unit.one("ExecStart").split()[-1])
    again = int(Unit.read("signal-cli", Path("/")).one("RestartSec"))
    assert looks + pause + again < PROMISED_SECONDS
    check = DOCKERFILE.read_text().replace("\n", " ")
    [interval] = re.findall(r"HEALTHCHECK --interval=(\d+)s", check)
    [timeout] = re.findall(r"HEALTHCHECK .*?--timeout=(\d+)s", check)
    assert looks < int(timeout)
    assert int(interval) + looks < PROMISED_SECONDS
