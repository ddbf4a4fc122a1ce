"""systemd's part in running a service, played at the process: what its unit file says of it.

Played: commands, environment, `.env` in the working directory, folders, credentials, umask, the
notify socket of the main process alone, the watchdog, reload, stop, and who is started again. The
paths of the layout lie below a folder of the test. Left out: users, name spaces, filters, limits,
and the time between restarts.
"""

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fakes.notify_socket import NotifySocket, notify_socket

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "systemd"
COMMAND_SECONDS: Final = 5.0
STOP_SECONDS: Final = 15.0
RESULT_SECONDS: Final = 15.0
CLEAN_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)
"""An end by these is no failure (systemd.service(5), SuccessExitStatus=)."""

_BECOME: Final = 'export WATCHDOG_PID=$$; umask "$0"; exec "$@"'
"""What a process can say of itself only after its fork, before it becomes the program."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The section [Service] of a unit file, for a machine whose root is a folder."""

    settings: Mapping[str, tuple[str, ...]]
    root: Path

    @classmethod
    def read(cls, name: str, root: Path) -> "Unit":
        """Read one of the unit files that are delivered."""
        settings: dict[str, list[str]] = defaultdict(list)
        section = ""
        for line in (DEPLOY / f"{name}.service").read_text().splitlines():
            key, equals, value = line.partition("=")
            if line.startswith("["):
                section = line
            elif section == "[Service]" and equals and not line.startswith("#"):
                settings[key].append(value)
        return cls({key: tuple(values) for key, values in settings.items()}, root)

    def all(self, key: str) -> tuple[str, ...]:
        """Return every value of a setting."""
        return self.settings.get(key, ())

    def one(self, key: str) -> str:
        """Return the last value of a setting, empty where it has none."""
        return (self.all(key) or ("",))[-1]

    def commands(self, key: str) -> list[list[str]]:
        """Return command lines, their programs those of the layout where it has them."""
        return [self._placed(shlex.split(value)) for value in self.all(key)]

    def path(self, absolute: str) -> Path:
        """Return where a path of the layout is."""
        return self.root / absolute.lstrip("/")

    def _placed(self, command: list[str]) -> list[str]:
        places = {"%t": self.path("/run"), "%S": self.path("/var/lib")}
        for specifier, place in places.items():
            command = [word.replace(specifier, str(place)) for word in command]
        program = self.path(command[0])
        return [str(program) if program.exists() else command[0], *command[1:]]


class Service:
    """A service that is kept running. Made by `running_service`.

    Attributes:
        notify: what its main processes said.
        pids: of its main processes so far, the running one last.
        results: how the earlier ones ended: `success`, `exit-code`, `signal`, `watchdog`.
        stderr: what they all wrote there, by lines.
    """

    def __init__(self, unit: Unit, notify: NotifySocket, watchdog_seconds: float | None) -> None:
        self.notify = notify
        self.pids: list[int] = []
        self.results: list[str] = []
        self.stderr: list[str] = []
        self._unit = unit
        self._watchdog_seconds = watchdog_seconds
        self._wanted = True
        self._process: Process | None = None
        self._ended = asyncio.Condition()

    @property
    def heard(self) -> list[str]:
        """What the running main process said, and nobody else."""
        return [
            line for said in self.notify.said if said.pid in self.pids[-1:] for line in said.lines
        ]

    async def ready(self, *, start: int = 1) -> None:
        """Wait until its start of that number is complete."""
        await self.notify.until(lambda: len(self.pids) >= start and "READY=1" in self.heard)

    async def ended(self, *, times: int = 1) -> str:
        """Wait until it has ended that often; return how it did the last time."""
        async with asyncio.timeout(RESULT_SECONDS), self._ended:
            await self._ended.wait_for(lambda: len(self.results) >= times)
        return self.results[-1]

    async def reload(self) -> None:
        """Do what `systemctl reload` does."""
        for command in self._unit.commands("ExecReload"):
            await self._command([word.replace("$MAINPID", str(self.pids[-1])) for word in command])

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its main process."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def stop(self) -> str:
        """Do what `systemctl stop` does; return how it ended."""
        self._wanted = False
        self.send_signal(signal.SIGTERM)
        return await self.ended(times=len(self.pids))

    async def run(self) -> None:
        """Keep it running until it is stopped, or ends for good."""
        while self._wanted:
            result, code = await self._run_once()
            async with self._ended:
                self.results.append(result)
                self._ended.notify_all()
            if not self._is_started_again(result, code):
                return

    def _is_started_again(self, result: str, code: int) -> bool:
        if str(code) in self._unit.one("RestartPreventExitStatus").split():
            return False
        return self._unit.one("Restart") == "always" or result != "success"

    async def _run_once(self) -> tuple[str, int]:
        for command in self._unit.commands("ExecStartPre"):
            await self._command(command)
        self._process = process = await self._start()
        self.pids.append(process.pid)
        starved = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(process))
                watching = tasks.create_task(self._watch(process, starved))
                code = await process.wait()
                watching.cancel()
        finally:
            if process.returncode is None:
                process.kill()
        return "watchdog" if starved.is_set() else self._result(code), code

    def _result(self, code: int) -> str:
        clean = {"0", *self._unit.one("SuccessExitStatus").split()}
        if code < 0:
            return "success" if -code in CLEAN_SIGNALS else "signal"
        return "success" if str(code) in clean else "exit-code"

    async def _start(self) -> Process:
        (command,) = self._unit.commands("ExecStart")
        become = ["/bin/sh", "-c", _BECOME, self._unit.one("UMask") or "0022"]
        return await asyncio.create_subprocess_exec(
            *become, *command,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=PIPE,
            env=self._environment(),
            cwd=self._unit.path(self._unit.one("WorkingDirectory")),
        )  # fmt: skip

    async def _command(self, command: list[str]) -> None:
        process = await asyncio.create_subprocess_exec(*command)
        async with asyncio.timeout(COMMAND_SECONDS):
            assert await process.wait() == 0, command

    def _environment(self) -> dict[str, str]:
        unit = self._unit
        variables = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": self.notify.address}
        if self._watchdog_seconds is not None:
            variables["WATCHDOG_USEC"] = str(int(self._watchdog_seconds * 1_000_000))
        for key, variable, place in (
            ("StateDirectory", "STATE_DIRECTORY", "/var/lib"),
            ("RuntimeDirectory", "RUNTIME_DIRECTORY", "/run"),
        ):
            if name := unit.one(key):
                folder = unit.path(place) / name
                folder.mkdir(parents=True, exist_ok=True)
                variables[variable] = str(folder)
        if unit.all("LoadCredential"):
            variables["CREDENTIALS_DIRECTORY"] = str(self._credentials())
        for assignment in unit.all("Environment"):
            name, _, value = assignment.partition("=")
            variables[name] = value
        return variables

    def _credentials(self) -> Path:
        """Copy what there is of the credentials; what is looked up in the store may be absent."""
        folder = self._unit.path("/run/credentials")
        folder.mkdir(parents=True, exist_ok=True)
        for name, _, stored in (value.partition(":") for value in self._unit.all("LoadCredential")):
            source = self._unit.path("/etc/credstore") / stored
            if source.exists():
                (folder / name).write_bytes(source.read_bytes())
        return folder

    async def _listen(self, process: Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.stderr.append(line.decode().rstrip("\n"))

    async def _watch(self, process: Process, starved: asyncio.Event) -> None:
        """Abort the process when it is silent for too long between READY=1 and STOPPING=1."""
        if self._watchdog_seconds is None:
            return
        while "READY=1" not in self.heard:
            await self.notify.news()
        with suppress(TimeoutError):
            while True:
                fed = self.heard.count("WATCHDOG=1")
                async with asyncio.timeout(self._watchdog_seconds):
                    while self.heard.count("WATCHDOG=1") == fed:
                        await self.notify.news()
        if self._wanted and "STOPPING=1" not in self.heard:
            starved.set()
            for number in (signal.SIGABRT, signal.SIGCONT):
                process.send_signal(number)


@asynccontextmanager
async def running_service(
    name: str, root: Path, *, watchdog_seconds: float | None = None
) -> AsyncIterator[Service]:
    """Run a delivered unit inside the block; what is left of it at the end is stopped.

    Args:
        name: of the unit, without its ending.
        root: the folder below which the layout lies.
        watchdog_seconds: instead of WatchdogSec=; None: nobody watches.
    """
    async with notify_socket(root / f"{name}.notify") as notify, asyncio.TaskGroup() as tasks:
        service = Service(Unit.read(name, root), notify, watchdog_seconds)
        running = tasks.create_task(service.run())
        try:
            yield service
        finally:
            if not running.done():
                service._wanted = False
                service.send_signal(signal.SIGTERM)
                service.send_signal(signal.SIGCONT)
                _, late = await asyncio.wait({running}, timeout=STOP_SECONDS)
                if late:
                    running.cancel()


def descendants(pid: int) -> Iterator[int]:
    """Yield the ids of a process's children and of theirs."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def environment_of(pid: int) -> bytes:
    """Return what a process was given as its environment."""
    return Path(f"/proc/{pid}/environ").read_bytes()
