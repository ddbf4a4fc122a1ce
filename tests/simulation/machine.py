"""The bot's machine: clocks and randomness of a seed, a disk that fails, a process to kill.

Together with `clocks`, it holds everything that is replaced: the threads of the database, the
processes of sandboxes, and the log's stderr. The product has no switch for the simulation.
"""

import asyncio
import importlib
import inspect
import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from bot import app
from bot.chat import caretaker, door
from bot.config.settings import Settings
from bot.foundation import Start
from bot.observability import logs, metrics
from bot.signal.receipts import DeliveryReceipts
from conversation_store import connections
from tests.simulation.clocks import entropy_of
from tests.simulation.disk import Disk, in_loop_connection
from tests.simulation.loop import OWNER, SimulatedLoop
from tools.sandbox.errors import WorkError
from tools.sandbox.pool import Sandbox

DATABASE_SECONDS: Final = 0.0005
"""Virtual time that an operation of the database takes on a healthy disk."""

IDLE_SECONDS: Final = 30.0
"""Looks at what no world has: the command line, a service manager, lag, warnings in a log."""

ZOMBIE_SECONDS: Final = 120.0
"""A killed process's own clean-up code, which reaches nothing any more, ends within this time."""


PAUSES: Final = (
    (door, "POLL_SECONDS"),
    (caretaker, "POLL_SECONDS"),
    (metrics, "LAG_EVERY_SECONDS"),
    (app, "STATUS_EVERY_SECONDS"),
)


Exit = BaseException | None


async def _in_this_process(self: Any, text: str) -> str:
    """Answer a request to a sandbox by the function that its process would call."""
    await asyncio.sleep(0.01)
    module = importlib.import_module(self._module)
    answer: Callable[[str], str] | None = getattr(module, "answer", getattr(module, "read", None))
    if answer is None:
        raise WorkError("There is no such program in the simulation.")
    return answer(text)


@contextmanager
def seeded(seed: int, log: list[str]) -> Iterator[None]:
    """Draw all randomness of the block from a seed, and collect the lines of the bot's log."""
    for level in ("msg", "debug", "info", "warning", "error", "critical", "exception"):
        setattr(logs._StderrLogger, level, lambda _, line: log.append(line))
    random.seed(f"random {seed}")
    with entropy_of(Random(f"entropy {seed}")):
        yield


class Machine:
    """A machine on which a bot lives, dies, and lives again.

    Args:
        settings: of the bot, read anew at each start.
        ended: called with the life and the exit of a process that was not killed.

    Attributes:
        life: number of starts so far.
        is_up: a process runs, and was not told to stop.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        disk: Disk,
        settings: Callable[[], Settings],
        ended: Callable[[int, Exit], None],
    ) -> None:
        self._loop, self._disk, self._settings, self._ended = loop, disk, settings, ended
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._synced = 0
        self._dying: list[asyncio.Task[Any]] = []
        self.sync_seconds = 0.0
        self.life = 0
        clock = inspect.signature(DeliveryReceipts).parameters["clock"].default
        assert clock is time.time, "The project was imported before the clocks were replaced."
        loop.set_task_factory(make_task)
        for module, pause in PAUSES:
            setattr(module, pause, IDLE_SECONDS)
        Sandbox.call = _in_this_process  # type: ignore[method-assign]
        opened = partial(in_loop_connection, delay=self._database_seconds)
        connections.connection = opened

    @property
    def owner(self) -> str:
        """Name of the present process for the network."""
        return f"bot {self.life}"

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start a process; the one before must have ended."""
        assert not self.is_up
        self.life += 1
        context = copy_context()
        context.run(OWNER.set, self.owner)
        self._stop = asyncio.Event()
        run = app.run(
            Start(self._settings(), clock=self._loop.wall),
            told_to_stop=self._stop,
        )
        self._task = self._loop.create_task(run, context=context)
        self._task.add_done_callback(partial(self._has_ended, self.life))

    async def has_ended(self) -> None:
        """Wait for the end of the process."""
        while self.is_up:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.05)

    def tell_to_stop(self) -> None:
        """Send SIGTERM."""
        self._stop.set()

    def strike(self) -> None:
        """Send SIGKILL, or cut the power: nothing that the process does has an effect any more."""
        task, self._task = self._task, None
        assert task is not None
        self._disk.die()
        self._loop.network.kill(self.owner)
        self._dying = [task, *self._mine()]
        for one in self._dying:
            one.cancel()

    async def bury(self, rng: Random, *, power: bool) -> None:
        """Wait until nothing of a killed process is left, and let its disk recover."""
        ends_at = self._loop.time() + ZOMBIE_SECONDS
        while self._dying and self._loop.time() < ends_at:
            await asyncio.wait(self._dying, timeout=1.0)
            for one in self._dying:
                if one.done() and not one.cancelled():
                    one.exception()
            self._dying = self._mine()
            for one in self._dying:
                one.cancel()
        assert not self._dying, f"These survive a kill: {self._dying}"
        self._disk.crash(rng, power=power)

    def _mine(self) -> list[asyncio.Task[Any]]:
        tasks = self._loop.unfinished_tasks()
        return [one for one in tasks if isinstance(one, OwnedTask) and one.owner == self.owner]

    def _has_ended(self, life: int, task: asyncio.Task[None]) -> None:
        if self._task is not task:
            return
        self._task = None
        error = None if task.cancelled() else task.exception()
        self._loop.network.kill(self.owner)
        self._ended(life, error)

    def _database_seconds(self) -> float:
        syncs, self._synced = self._disk.syncs - self._synced, self._disk.syncs
        return DATABASE_SECONDS + self.sync_seconds * syncs


class OwnedTask(asyncio.Task[Any]):
    """Task that knows its process. Its hash is a number, so that sets of tasks have an order."""

    _numbers: ClassVar = itertools.count(1)

    def __init__(self, coroutine: Any, **more: Any) -> None:
        self.owner = OWNER.get() if (context := more.get("context")) is None else context[OWNER]
        self._number = next(self._numbers)
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self._number


def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> OwnedTask:
    """Make a task; a factory for event loops."""
    return OwnedTask(coroutine, loop=loop, **more)
