"""The processes of a benchmark: the real daemon, a Signal side, a model; every wait is bounded."""

import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.control import Json
from benchmarks.signal_side import NUMBER

ROOT: Final = Path(__file__).parent.parent
SLOW_DISK: Final = ROOT / "benchmarks" / "slow_disk_site"
"""In the path of a Python process, it makes the syncs of SQLite slow."""

DISK: Final = Path("/var/tmp")
"""Unlike /tmp it is never held in memory, so commits cost what they cost."""

WAY: Final = ROOT / "benchmarks" / "way_site"
"""In the path of a Python process, it can record the calls of a turn."""

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 15.0
COMMAND_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.005
ANSWER_SECONDS: Final = 5.0


class BenchmarkFailed(Exception):
    """A process did not do its part; its own words are on stderr."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A process that carries out commands.

    Attributes:
        ready: its own report when it was ready.
    """

    ready: Json
    _process: Process

    async def ask(self, **command: object) -> Json:
        """Carry out a command and return its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await _next_answer(self._process, COMMAND_SECONDS)


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of the bot.

    Attributes:
        signal: plays the people.
        settings: with which the bot finds both sides.
        folder: on a real disk.
    """

    signal: Helper
    settings: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class Bot:
    """The real daemon, ready.

    Attributes:
        start_seconds: from its start to a good answer of `/readyz`.
    """

    pid: int
    start_seconds: float

    @property
    def resident_mb(self) -> float:
        """Memory of the process itself."""
        return _resident_mb(self.pid, "VmRSS")

    @property
    def peak_mb(self) -> float:
        """The most memory that the process itself ever had."""
        return _resident_mb(self.pid, "VmHWM")

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the process itself has taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def children_mb(self) -> float:
        """Memory of all processes that it has started."""
        return sum(_resident_mb(child, "VmRSS") for child in _children(self.pid))


@asynccontextmanager
async def folder_on_disk() -> AsyncIterator[Path]:
    """Provide a folder on a real disk."""
    with tempfile.TemporaryDirectory(prefix="stb-", dir=DISK) as name:
        yield Path(name)


@asynccontextmanager
async def sides(
    *,
    delay_seconds: float = 0.0,
    calculate: bool = False,
    obey: bool = False,
    tokens: int = 0,
    token_seconds: float = 0.0,
) -> AsyncIterator[Sides]:
    """Run both sides of a bot.

    Args:
        delay_seconds: how long the model thinks.
        calculate: the model asks for one calculation in each turn.
        obey: the model runs the commands that messages ask for.
        tokens: of an answer; 0: a short sentence.
        token_seconds: from one token to the next.
    """
    arguments = ["--delay-seconds", str(delay_seconds)]
    arguments += [*(["--calculate"] if calculate else []), *(["--obey"] if obey else [])]
    arguments += ["--tokens", str(tokens), "--token-seconds", str(token_seconds)]
    async with folder_on_disk() as folder:
        path = folder / "signal.sock"
        async with (
            helper("benchmarks.signal_side", str(path)) as signal,
            helper("benchmarks.model_side", *arguments) as model,
        ):
            yield Sides(signal, settings(f"unix:{path}", NUMBER, model, folder), folder)


def settings(signal_url: str, number: str, model: Helper, folder: Path) -> Mapping[str, str]:
    """Return the settings of a bot without rate limits."""
    return {
        "SIGNAL__URL": signal_url,
        "SIGNAL__PHONE_NUMBER": number,
        "LLM__BASE_URL": f"http://127.0.0.1:{model.ready['port']}/v1",
        "LLM__MODEL": "bench",
        "LLM__MAX_CONCURRENCY": "1024",
        "ACCESS__POLICY": "open",
        "ACCESS__MESSAGES_PER_MINUTE": "1000000",
        "TOOLS__WEB_SEARCH__ENABLED": "false",
        "TOOLS__CALLS_PER_MINUTE": "1000000",
        "TOOLS__CALLS_PER_MINUTE_TOTAL": "1000000",
        "STORE__PATH": str(folder / "store.db"),
        "HEALTH__LISTEN": f"127.0.0.1:{_free_port()}",
        "LOG__LEVEL": "warning",
    }


@asynccontextmanager
async def helper(module: str, *arguments: str) -> AsyncIterator[Helper]:
    """Run a module as a process that carries out commands; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    try:
        yield Helper(await _next_answer(process, START_SECONDS), process)
    finally:
        await _stop(process)


@asynccontextmanager
async def running_bot(
    bot_settings: Mapping[str, str],
    folder: Path,
    *,
    sync_ms: int = 0,
    record_way: Path | None = None,
    within: Sequence[str] = (),
) -> AsyncIterator[Bot]:
    """Run the daemon as people do, wait until it is ready, and stop it at the end.

    Args:
        bot_settings: its environment.
        folder: where it runs.
        sync_ms: how much longer than on this machine a sync of its disk takes.
        record_way: the file for the calls between two SIGUSR1.
        within: a command that runs the command in its arguments, as `nice` does.
    """
    inherited = {name: value for name, value in os.environ.items() if "__" not in name}
    path = [str(ROOT)]
    if sync_ms:
        inherited["SLOW_DISK_MS"] = str(sync_ms)
        path.append(str(SLOW_DISK))
    if record_way is not None:
        inherited |= {"WAY_RECORD": str(record_way), "WAY_ROOT": str(ROOT)}
        path.append(str(WAY))
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(*within, sys.executable, "-m", "bot", "run"),
        cwd=folder,
        env={**inherited, "PYTHONPATH": os.pathsep.join(path), **bot_settings},
    )
    try:
        await _until_ready(process, bot_settings["HEALTH__LISTEN"])
        yield Bot(process.pid, time.perf_counter() - began)
    except BaseException:
        # Nothing is to be measured any more, so its orderly end need not be waited for.
        with suppress(ProcessLookupError):
            process.kill()
        raise
    finally:
        await _stop(process)


async def _until_ready(process: Process, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _is_ready(host, int(port)):
                if process.returncode is not None:
                    raise BenchmarkFailed("The bot ended while it started.")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise BenchmarkFailed("The bot did not become ready in time.") from None


async def _is_ready(host: str, port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except ConnectionError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            return (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()
        await writer.wait_closed()


async def _next_answer(process: Process, seconds: float) -> Json:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            line = await process.stdout.readline()
    except TimeoutError:
        raise BenchmarkFailed("A process of the benchmark did not answer in time.") from None
    if not line:
        raise BenchmarkFailed("A process of the benchmark ended too early.")
    answer: Json = json.loads(line)
    return answer


async def _stop(process: Process) -> None:
    """Ask it to end; if it does not, end it."""
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise BenchmarkFailed("A process did not end when it was told to.") from None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _resident_mb(pid: int, field: str) -> float:
    """Megabytes of a process, as Linux counts them (proc(5))."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024 / 1e6
    raise BenchmarkFailed("The memory of a process is unknown.")


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())
