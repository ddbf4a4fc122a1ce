"""Run signal-cli as a child of this program (`SIGNAL__URL=spawn:`).

It listens on its own Unix socket, in manual receive mode. The bot restarts it when it ends, and
ends it if it hangs. The bot asks it for signs of life over a separate connection, which long sends
and pauses in reading cannot delay.

It ends with this program: by SIGTERM and then SIGKILL when `run` ends, and by the kernel when this
program is killed (`process.parent_death`). A killed program may leave a signal-cli behind, and so
may a start script that runs signal-cli as a child. At its start, the bot first ends such a
signal-cli, because two of them must not use one account.

Its output is discarded, because it contains messages. In its log, the bot only looks for
`AccountTrouble`.
"""

import asyncio
import os
import shutil
import signal
import socket
import struct
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import structlog

from bot.backoff import Backoff
from bot.errors import BotError, SettingsError
from bot.observability.metrics import SIGNAL_CLI_RESTARTS
from bot.signal.errors import SignalError
from bot.signal.installation import program_in
from bot.signal.json_rpc import JsonRpcConnection, JsonRpcError
from bot.signal.trouble import AccountTrouble, trouble_in

PROGRAM: Final = "signal-cli"
SOCKET_NAME: Final = "signal-cli.sock"
SOCKET_PATH_BYTES: Final = 107
"""Room in a Unix socket's address, without its final zero (unix(7))."""

STOP_SECONDS: Final = 5.0
"""signal-cli takes 1.5 s to stop."""
LOG_BYTES: Final = 16_384
LONGEST_WORDS: Final = 100
"""Bytes kept from one read of the log to the next, to find words that are split between reads."""
LOOK_AGAIN_SECONDS: Final = 0.05
STEADY_SECONDS: Final = 60.0
"""A signal-cli that ran this long did not fail at the start."""
START_SECONDS: Final = 60.0
"""Until it listens: that takes 2 s, or 10 s with accounts and no network."""
ENDS_AT_ONCE: Final = "It ends again and again. Run signal-cli --version to see why."
MISSED_SIGNS: Final = 2
NOBODY_LISTENS: Final = (ConnectionRefusedError, FileNotFoundError, TimeoutError)
RESTART: Final = Backoff(first_seconds=1.0, longest_seconds=60.0)

_INHERITED: Final = (
    "HOME", "JAVA_HOME", "JAVA_OPTS", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "PATH",
    "SIGNAL_CLI_OPTS", "TMPDIR", "TZ", "USER", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Environment variables that signal-cli gets; the others may hold secrets."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred of socket(7): pid, uid, gid

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SpawnTimeouts:
    """Time limits of signal-cli, in seconds.

    By default the bot notices a hang after 28 s, and needs 5 s more to end signal-cli.
    """

    sign_every: float = 12.0  # between two questions for a sign of life; no pause after a miss
    sign: float = 8.0  # until the answer to such a question
    start: float = START_SECONDS  # until it listens
    stop: float = STOP_SECONDS  # for each step of ending it: SIGTERM, SIGKILL


def socket_path(store: Path) -> Path:
    """Return the path of signal-cli's socket: in systemd's state directory, or next to the store.

    Args:
        store: `STORE__PATH`.

    Raises:
        SettingsError: the path is too long for a socket.
    """
    state, _, _ = os.environ.get("STATE_DIRECTORY", "").partition(":")
    path = (Path(state) if state else store.parent).absolute() / SOCKET_NAME
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
        raise SettingsError(
            f"{'$STATE_DIRECTORY' if state else 'STORE__PATH'}: the folder's path is too long for"
            f" signal-cli's socket, whose path has at most {SOCKET_PATH_BYTES} bytes"
        )
    return path


@dataclass(eq=False)
class SpawnedSignalCli:
    """A signal-cli that the bot starts, restarts and ends.

    Use `run` and `process` in the main thread: to the kernel, the end of the thread that started
    signal-cli is the end of the program.

    Attributes:
        path: of the socket, see `socket_path`.
        data_dir: signal-cli's own folder; None for signal-cli's default.
        home: of installed releases; the chosen one takes precedence over that on the PATH.
        silent: it did not answer the last question for a sign of life.
        trouble: reported by its log since the last start.
    """

    path: Path
    data_dir: Path | None = None
    home: Path | None = None
    backoff: Backoff = RESTART
    patience: SpawnTimeouts = field(default_factory=SpawnTimeouts)
    silent: bool = field(default=False, init=False)
    trouble: AccountTrouble | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Its address, for `SignalDaemon`."""
        return f"unix:{self.path}"

    @property
    def folder(self) -> Path:
        """Folder of its accounts, and of the files that come with messages."""
        data_home = os.environ.get("XDG_DATA_HOME")
        default = (Path(data_home) if data_home else Path.home() / ".local/share") / "signal-cli"
        return self.data_dir or default

    async def run(self) -> NoReturn:
        """Keep it running until cancelled; end it before returning.

        Raises:
            SettingsError: signal-cli is not installed.
            BotError: it cannot be started.
        """
        clock = asyncio.get_running_loop().time
        failures = 0
        while True:
            started_at = clock()
            async with self.process() as process:
                hangs = await self._hangs(process)
            self.silent = False
            SIGNAL_CLI_RESTARTS.labels("silent" if hangs else "ended").inc()
            failures = 1 if clock() - started_at >= STEADY_SECONDS else failures + 1
            delay = self.backoff.seconds(failures)
            log.warning(
                "signal_cli.ended",
                code=process.returncode,
                attempt=failures,
                reason=ENDS_AT_ONCE if failures > 1 else "It is started again.",
                delay_seconds=round(delay, 1),
            )
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Process]:
        """Run it once, inside the block; it listens some seconds later.

        Raises:
            SettingsError: signal-cli is not installed.
            BotError: it cannot be started.
        """
        command = self._command()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            left_over = listener(self.path)
            if left_over is not None:
                await end_listener(left_over, self.patience.stop)
                log.warning("signal_cli.left_over_ended")
            self.path.unlink(missing_ok=True)  # signal-cli does not start if the socket exists
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", "bot.observability.parent_death", str(os.getpid())),
                *command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
                env={name: os.environ[name] for name in _INHERITED if name in os.environ},
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise BotError(f"signal-cli cannot be started: {reason}.") from error
        self.trouble = None
        reading = asyncio.create_task(self._read_log(process))
        try:
            yield process
        finally:
            await _end(process, self.patience.stop)
            reading.cancel()

    async def _read_log(self, process: Process) -> None:
        """Look for `AccountTrouble` in the log, and keep nothing else of it."""
        if process.stderr is None:
            return
        before = b""
        while piece := await process.stderr.read(LOG_BYTES):
            found = trouble_in((before + piece).decode(errors="replace"))
            before = piece[-LONGEST_WORDS:]
            if found is not None and found is not self.trouble:
                log.warning("signal_cli.trouble", reason=found.value)
                self.trouble = found

    async def _hangs(self, process: Process) -> bool:
        """Wait until it ends or gives no sign of life; return whether it still runs."""
        clock = asyncio.get_running_loop().time
        started_at, missed = clock(), 0
        while missed < MISSED_SIGNS:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 0 if missed else self.patience.sign_every)
            if process.returncode is not None:
                return False
            starting = clock() - started_at < self.patience.start
            missed = 0 if await self._answers(while_it_starts=starting) else missed + 1
            if missed == 1:
                log.warning("signal_cli.silent", seconds=self.patience.sign)
            self.silent = missed > 0
        log.error("signal_cli.hangs", attempts=missed)
        return True

    async def _answers(self, *, while_it_starts: bool) -> bool:
        """Whether it gives a sign of life; `while_it_starts`, it need not listen yet."""
        listens = False
        try:
            async with (
                asyncio.timeout(self.patience.sign),
                JsonRpcConnection.connect(self.url) as connection,
            ):
                listens = True
                await connection.call("version", {}, seconds=self.patience.sign)
        except JsonRpcError:
            return True
        except (SignalError, TimeoutError) as error:
            # Other causes, such as too few descriptors, say nothing about signal-cli.
            silent = isinstance(error.__cause__ or error, NOBODY_LISTENS)
            return not listens and (while_it_starts or not silent)
        return True

    def _command(self) -> list[str]:
        program = found_program(self.home)
        if program is None:
            raise SettingsError(
                "SIGNAL__URL: spawn: needs signal-cli; `signal-tee-bot signal-cli install` installs"
                " it. Or give the address of one that runs elsewhere"
            )
        config = ["--config", str(self.data_dir)] if self.data_dir else []
        daemon = ["daemon", "--socket", str(self.path)]
        return [program, *config, *daemon, "--receive-mode", "manual", "--no-receive-stdout"]


def found_program(home: Path | None) -> str | None:
    """Return the installed signal-cli, otherwise the one on the PATH."""
    installed = None if home is None else program_in(home)
    return shutil.which(PROGRAM) if installed is None else str(installed)


async def _end(process: Process, seconds: float) -> None:
    """Ask its process group to end, then kill it: a start script may have children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await asyncio.wait_for(_group_ended(process), seconds)
            return


async def _group_ended(process: Process) -> None:
    await process.wait()
    with suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def end_listener(process: int, seconds: float) -> None:
    """End the process that listens on a socket used only by the bot's signal-cli.

    Args:
        process: from `listener`; closed.
        seconds: for each step, SIGTERM and SIGKILL.

    Raises:
        BotError: it does not end.
    """
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(process, ended.set)
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), seconds)
                return
    finally:
        loop.remove_reader(process)
        os.close(process)
    raise BotError("Another signal-cli uses this bot's socket and does not end: kill it first.")


def listener(path: Path) -> int | None:
    """Return a handle (pidfd) of the process that listens on a socket, or None."""
    if sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fsencode(path))
        except OSError:
            return None
        found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, _, _ = _CREDENTIALS.unpack(found)
        with suppress(ProcessLookupError):
            return os.pidfd_open(pid)
    return None
