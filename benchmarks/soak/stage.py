"""The world of the bot in a soak: Signal side, model, disk, lives and faults."""

import asyncio
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.soak.audit import NEVER_STORED, read_rows
from benchmarks.soak.faults import End, Fault, Life, Planned, faults
from benchmarks.soak.model import Model, Mood
from benchmarks.soak.people import MESSAGES_PER_MINUTE, PEOPLE, Crowd
from benchmarks.soak.samples import Process
from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.disks import CannotMount, Disk, memory_disk
from tests.e2e.running_bot import World
from tests.fakes.json_rpc_server import Client, Json, LostReply
from tests.fakes.openai_server import openai_server
from tests.fakes.signal_cli import FallingSilent
from tests.fakes.signal_side import Sent

DISK_BYTES: Final = 256 * 1024 * 1024
GONE_SECONDS: Final = 10.0

BEFORE_MS: Final = 3_000
AFTER_MS: Final = 1_000
"""Around a fault in which the answer to a send may have got lost."""

LOSES_ANSWERS: Final = frozenset(
    {
        Fault.CONNECTION_LOST,
        Fault.SIGNAL_AWAY,
        Fault.SIGNAL_SILENT,
        Fault.ANSWERS_LOST,
        Fault.ALL_AT_ONCE,
    }
)


class SoakFailed(Exception):
    """The soak cannot go on; the words say why."""


class SoakSignal(FallingSilent):
    """Signal as the bot sees it.

    Attributes:
        loses_answers: whether sends are done and never answered, as signal-cli-rest-api does.
    """

    loses_answers = False

    async def _send(self, client: Client, params: Json) -> object:
        answer = await super()._send(client, params)
        if self.loses_answers:
            raise LostReply
        return answer

    @property
    def kept(self) -> frozenset[int]:
        """Timestamps of the messages that wait here for the bot."""
        return frozenset(frame["envelope"]["timestamp"] for frame in self._undelivered)


@dataclass(slots=True)
class Mark:
    """Fault or death of the bot; seconds since the soak began.

    Attributes:
        kind: a fault, or the end of a life.
        at: when it began.
        until: when it was over.
    """

    kind: str
    at: float
    until: float


class Stage:
    """The bot's world for one soak.

    Args:
        here: both sides and the folder.
        signal: the Signal side among them.
        disk: a disk to fill; None if mounting is not allowed, then a limit stops files instead.
        random: of everything that happens.

    Attributes:
        crowd: the people.
        marks: the faults of the bot so far.
        process: its life now; None between two lives.
        undisturbed: held to prevent further faults.
        log: the lines of the bot on stderr, in all its lives.
        ends: how its lives ended.
    """

    def __init__(self, here: World, signal: SoakSignal, disk: Disk | None, random: Random) -> None:
        self.crowd = Crowd(signal, Random(random.random()))
        self.marks: list[Mark] = []
        self.process: Process | None = None
        self.undisturbed = asyncio.Lock()
        self.log: list[str] = []
        self.ends: Counter[str] = Counter()
        self.began = time.monotonic()
        self.began_ms = time.time() * 1000
        self.store = (here.folder if disk is None else disk.folder) / "store.db"
        self.port = _free_port()
        self._notes = here.folder / "notes"
        self._here = here
        self._signal = signal
        self._disk = disk
        self._model = Model(here.model, Random(random.random()))
        self._faults: Iterator[Planned] = faults(Random(random.random()))
        self._life = 0

    def now(self) -> float:
        """Return the seconds since the soak began."""
        return time.monotonic() - self.began

    def notes(self) -> list[str]:
        """Return the notes that the bot has written with permission."""
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    @property
    def sent(self) -> Sequence[Sent]:
        """All messages of the bot."""
        return self._signal.sent

    @property
    def excuses(self) -> list[tuple[float, float]]:
        """Period in which an answer to a send could get lost, in ms of Signal's clock."""
        losing = LOSES_ANSWERS | {End.KILLED}
        return [
            (
                self.began_ms + mark.at * 1000 - BEFORE_MS,
                self.began_ms + mark.until * 1000 + AFTER_MS,
            )
            for mark in self.marks
            if mark.kind in losing
        ]

    async def live(self, life: Life) -> None:
        """Start the bot, inject faults, and end it as the life prescribes.

        Raises:
            SoakFailed: the bot ended by itself, or not as it should.
        """
        async with self._running() as bot, asyncio.TaskGroup() as tasks:
            suffering = tasks.create_task(self._suffer(bot))
            await _stay(bot, life.seconds)
            if life.end is End.STOPPED:
                suffering.cancel()
                await asyncio.wait({suffering})
                await self._stop(bot)
                self._look(lost_is_fine=False)
            else:
                await self._kill(bot)
                suffering.cancel()
                await asyncio.wait({suffering})
                self._look(lost_is_fine=True)
        await asyncio.sleep(life.down_seconds)

    async def live_to_the_end(
        self, life: Life, *, calm_seconds: float, end: Callable[[], Awaitable[None]]
    ) -> None:
        """Live the last life: troubles, a calm end, everything answered, an ordered stop.

        Args:
            life: how long.
            calm_seconds: of it, without any trouble.
            end: awaited when the end begins.
        """
        async with self._running() as bot, asyncio.TaskGroup() as tasks:
            suffering = tasks.create_task(self._suffer(bot))
            await _stay(bot, max(0.0, life.seconds - calm_seconds))
            suffering.cancel()
            await _stay(bot, min(calm_seconds, life.seconds))
            await end()
            await self._stop(bot)
            self._look(lost_is_fine=False)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[Daemon]:
        self._life += 1
        async with daemon(self._settings(), folder=self._here.folder) as bot:
            self.process = Process(self._life, bot.pid)
            try:
                yield bot
            finally:
                self.process = None
                self.log += bot.stderr

    async def _kill(self, bot: Daemon) -> None:
        self.process = None
        with self._marked(End.KILLED):
            await bot.killed()
            await self._signal.wait_until_alone(seconds=GONE_SECONDS)
            async with asyncio.timeout(GONE_SECONDS):
                await self.crowd.have_spoken()
        self.ends[End.KILLED] += 1

    async def _stop(self, bot: Daemon) -> None:
        self.process = None
        with self._marked(End.STOPPED):
            bot.send_signal(signal.SIGTERM)
            code = await bot.exit_code()
            await self._signal.wait_until_alone(seconds=GONE_SECONDS)
        if code != 0:
            raise SoakFailed(f"Told to stop, the bot ended with {code}.")
        self.ends[End.STOPPED] += 1

    def _look(self, *, lost_is_fine: bool) -> None:
        """Find messages that were on their way to the bot and are in no store."""
        rows, kept = read_rows(self.store), self._signal.kept
        lost = {
            one.timestamp
            for one in self.crowd.said
            if one.timestamp and not one.lost and one.kind not in NEVER_STORED
        } - rows.outcomes.keys() - kept  # fmt: skip
        if lost_is_fine:
            self.crowd.lose(lost)

    # Troubles

    async def _suffer(self, bot: Daemon) -> None:
        for planned in self._faults:
            await asyncio.sleep(planned.pause_seconds)
            async with self.undisturbed:
                with self._marked(planned.fault):
                    async with self._trouble(planned.fault, bot):
                        await asyncio.sleep(planned.seconds)

    @contextmanager
    def _marked(self, kind: str) -> Iterator[None]:
        mark = Mark(kind, self.now(), self.now())
        self.marks.append(mark)
        try:
            yield
        finally:
            mark.until = self.now()

    @asynccontextmanager
    async def _trouble(self, fault: Fault, bot: Daemon) -> AsyncIterator[None]:
        async with AsyncExitStack() as over:
            match fault:
                case Fault.CONNECTION_LOST:
                    await self._signal.drop_connections()
                case Fault.SIGNAL_SILENT:
                    self._signal.silent = True
                    over.callback(setattr, self._signal, "silent", False)
                case Fault.ANSWERS_LOST:
                    self._signal.loses_answers = True
                    over.callback(setattr, self._signal, "loses_answers", False)
                case Fault.RELOAD:
                    bot.send_signal(signal.SIGHUP)
                case Fault.MODEL_SLOW | Fault.MODEL_CUTS | Fault.MODEL_BUSY:
                    self._model.mood = MOODS[fault]
                    over.callback(setattr, self._model, "mood", Mood.WELL)
            if fault in {Fault.DISK_FULL, Fault.ALL_AT_ONCE}:
                self._fill(bot)
                over.callback(self._make_room, bot)
            if fault in {Fault.MODEL_DOWN, Fault.ALL_AT_ONCE}:
                await self._here.model.stop()
                over.push_async_callback(self._here.model.start)
            if fault in {Fault.SIGNAL_AWAY, Fault.ALL_AT_ONCE}:
                await self._signal.go_away()
                over.push_async_callback(self._signal.come_back)
            yield

    def _fill(self, bot: Daemon) -> None:
        if self._disk is not None:
            self._disk.fill()
            return
        with suppress(ProcessLookupError):
            bot.leave_no_room()

    def _make_room(self, bot: Daemon) -> None:
        if self._disk is not None:
            self._disk.make_room()
            return
        with suppress(ProcessLookupError):
            bot.make_room()

    def _settings(self) -> Mapping[str, str]:
        server = f"{sys.executable} -m tests.fakes.mcp_notes {self._notes}"
        return environment(
            self._here,
            STORE__PATH=str(self.store),
            HEALTH__LISTEN=f"127.0.0.1:{self.port}",
            ACCESS__POLICY="allowlist",
            ACCESS__ALLOWED=",".join(person.aci for person in PEOPLE),
            ACCESS__MESSAGES_PER_MINUTE=str(MESSAGES_PER_MINUTE),
            LLM__CONTEXT_TOKENS="4000",
            LLM__VISION="on",
            TOOLS__CALLS_PER_MINUTE_TOTAL="6000",
            MCP__SERVERS__NOTES__COMMAND=server,
            LOG__LEVEL="warning",
        )


MOODS: Final = {
    Fault.MODEL_SLOW: Mood.SLOW,
    Fault.MODEL_CUTS: Mood.CUTTING,
    Fault.MODEL_BUSY: Mood.BUSY,
}


@asynccontextmanager
async def stage(random: Random) -> AsyncIterator[Stage]:
    """Set up a bot's world, and take it down."""
    with tempfile.TemporaryDirectory(prefix="stb-soak-") as name:
        folder = Path(name)
        async with AsyncExitStack() as parts:
            disk = None
            with suppress(CannotMount):
                disk = parts.enter_context(memory_disk(folder / "disk", DISK_BYTES))
            signal_side = await parts.enter_async_context(SoakSignal.listen(folder / "signal.sock"))
            model = await parts.enter_async_context(openai_server())
            yield Stage(World(signal_side, model, folder), signal_side, disk, random)


async def _stay(bot: Daemon, seconds: float) -> None:
    """Run the bot for some time."""
    try:
        code = await bot.exit_code(seconds=seconds)
    except TimeoutError:
        return
    raise SoakFailed(f"The bot ended by itself, with {code}: {' '.join(bot.stderr[-3:])}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
