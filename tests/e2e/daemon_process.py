"""The real daemon as a process of its own: `python -m bot run`, settings by environment."""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.e2e.quick_start import MAX_LINE_BYTES, Program, start
from tests.e2e.running_bot import World
from tests.fakes.signal_side import BOT

EVENT_SECONDS: Final = 30.0
EXIT_SECONDS: Final = 25.0
"""Longer than the sum of the daemon's own bounds for its shutdown."""

COMMAND_SECONDS: Final = 30.0
AFTER_KILL_SECONDS: Final = 30.0
SHOWN_LINES: Final = 20
"""Last lines of the log that a failing test shows."""
HASTY: Final = "tests.e2e.hasty_bot"
"""The settings of a daemon that is killed often."""


class Daemon:
    """A process with its output and its exit. Made by `daemon`.

    Attributes:
        stderr: its lines so far, without their newlines; also what it says on standard output,
            which should be nothing.
    """

    def __init__(self, process: asyncio.subprocess.Process | Program) -> None:
        self._process = process
        self._said = asyncio.Condition()
        self._silent = False
        self.stderr: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    async def event(self, name: str, *, times: int = 1) -> dict[str, Any]:
        """Return the log line of an event once it was logged that often.

        Raises:
            AssertionError: the log ended before.
        """
        async with asyncio.timeout(EVENT_SECONDS), self._said:
            await self._said.wait_for(lambda: self._silent or len(self.events(name)) >= times)
        assert len(self.events(name)) >= times, f"No {name} in {self.stderr}"
        return self.events(name)[times - 1]

    async def port(self) -> int:
        """Return the address of its health server, once it listens."""
        port: int = (await self.event("health.listening"))["port"]
        return port

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.stderr if line.startswith("{"))
        return [line for line in lines if line["event"] == name]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal now; a process that has ended already takes none."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    def leave_no_room(self) -> None:
        """Make every write to a file fail from now on, as on a full disk."""
        _, most = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (0, most))

    def make_room(self) -> None:
        _, most = resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (most, most))

    async def exit_code(self, *, seconds: float = EXIT_SECONDS) -> int:
        """Wait for the end of the process and of everything it wrote."""
        async with asyncio.timeout(seconds):
            code = await self._process.wait()
            async with self._said:
                await self._said.wait_for(lambda: self._silent)
        return code

    async def killed(self) -> None:
        self.send_signal(signal.SIGKILL)
        await self.exit_code(seconds=AFTER_KILL_SECONDS)

    async def listen(self, output: asyncio.StreamReader) -> None:
        """Collect its output until it and its children have closed their end."""
        async for line in output:
            self.stderr.append(line.decode().rstrip("\n"))
            await self._announce()
        self._silent = True
        await self._announce()

    async def _announce(self) -> None:
        async with self._said:
            self._said.notify_all()


@asynccontextmanager
async def daemon(
    settings: Mapping[str, str], *, folder: Path, module: str = "bot", through: Sequence[str] = ()
) -> AsyncIterator[Daemon]:
    """Run the daemon inside the block; kill its remaining processes at the end.

    Args:
        settings: the environment, and nothing else but PATH.
        folder: its working directory.
        module: what is run.
        through: a command that executes the command in its arguments, so that Python starts anew.
    """
    variables = {"PATH": os.environ["PATH"], **settings}
    process: asyncio.subprocess.Process | Program
    if through:
        process = await asyncio.create_subprocess_exec(
            *through, sys.executable, "-m", module, "run",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=variables,
            cwd=folder,
            limit=MAX_LINE_BYTES,
        )  # fmt: skip
        output = process.stdout
    else:
        process, output, _ = await start(module, "run", environment=variables, folder=folder)
    assert output is not None
    running = Daemon(process)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(running.listen(output))
        try:
            yield running
        except Exception as error:
            error.add_note("\n".join(running.stderr[-SHOWN_LINES:]))
            raise
        finally:
            await running.killed()


async def run_command(
    arguments: Sequence[str], settings: Mapping[str, str], *, folder: Path
) -> tuple[int, str, str]:
    """Run `python -m bot ...` to its end and return its exit code, stdout and stderr."""
    variables = {"PATH": os.environ["PATH"], **settings}
    process, output, errors = await start(
        "bot", *arguments, environment=variables, folder=folder, errors_apart=True
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            out, err = await asyncio.gather(output.read(), errors.read())
            await process.wait()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        code = await process.wait()
    return code, out.decode(), err.decode()


def environment(here: World, **more: str) -> dict[str, str]:
    """Return the settings of a daemon between this world's Signal side and its model."""
    return {
        "SIGNAL__URL": f"unix:{here.signal.path}",
        "SIGNAL__PHONE_NUMBER": BOT.number,
        "LLM__BASE_URL": here.model.base_url,
        "LLM__MODEL": "fake",
        "STORE__PATH": str(here.folder / "store.db"),
        "ACCESS__POLICY": "open",
        "ACCESS__MESSAGES_PER_MINUTE": "100000",
        "ATTESTATION__DSTACK_SOCKET": str(here.folder / "no-dstack.sock"),
        "HEALTH__LISTEN": "",
        "LOG__FORMAT": "json",
        **more,
    }
