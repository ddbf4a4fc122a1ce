"""`kill -9` while facts are remembered and forgotten: each is there once, under its own number."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Final

import apsw
import pytest

from tests.e2e.daemon_process import HASTY, Daemon, daemon, ends_when_told, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import read_store
from tests.fakes.openai_server import Request, text, tool_calls
from tests.fakes.signal_side import Sent

ORDINARY_KILLS: Final = 1
FULL_KILLS: Final = 40
SEED: Final = 3

LIFE_SECONDS: Final = 30.0
MAX_STEPS: Final = 4
MAX_WAIT_SECONDS: Final = 0.02
MAX_STEP_SECONDS: Final = 5.0

NAME: Final = re.compile(r"name (n\d+)\Z")
NUMBER: Final = re.compile(r"Remembered as number (\d+)\.")


@pytest.mark.parametrize(
    "kills", [ORDINARY_KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)]
)
async def test_each_fact_is_there_once_and_stays_forgotten_however_often_the_bot_is_killed(
    kills: int,
) -> None:
    async with world() as here:
        trial = Trial(here, Random(SEED + kills))
        for _ in range(kills):
            await trial.live(killed=True)
        await trial.live(killed=False)
        trial.check()


class Trial:
    """Lives of a daemon whose model keeps two facts for each message and forgets the second.

    Args:
        here: both sides of the daemon.
        random: how and when its lives end.
    """

    def __init__(self, here: World, random: Random) -> None:
        self._here = here
        self._random = random
        self._said: dict[str, int] = {}
        self._steps = 0
        self._due = asyncio.Event()
        here.model.handler = self._model
        here.signal.on_send = self._on_send

    async def live(self, *, killed: bool) -> None:
        """Start the daemon, write to it, and end it."""
        self._steps = self._random.randint(1, MAX_STEPS)
        self._due.clear()
        names = self._received()
        outcomes = read_store(self._here.folder / "store.db").outcomes
        # One turn at a time: after too many kills it would be given up.
        if None not in outcomes.values():
            name = f"n{len(self._said)}"
            self._said[name] = await self._here.signal.say(f"name {name}")
            names.append(name)
        settings = environment(self._here, LOG__LEVEL="error")
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(settings, folder=self._here.folder, module=HASTY) as running:
                await (self._kill(running) if killed else self._finish(running, names))
        await self._here.signal.wait_until_alone()

    def check(self) -> None:
        """Hold the facts against what people said, and against what the model was told."""
        database = apsw.Connection(str(self._here.folder / "store.db"))
        try:
            rows = database.execute("SELECT text, number FROM remembered").fetchall()
        finally:
            database.close()
        numbers = [int(str(number)) for _, number in rows]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        kept = [fact for fact, _ in rows if fact is not None]
        received = self._received()
        assert sorted(kept) == sorted(f"one of {name}" for name in received)

    def _received(self) -> list[str]:
        """Return the names that the bot has stored; others were lost with the socket."""
        stored = read_store(self._here.folder / "store.db")
        return [name for name, timestamp in self._said.items() if timestamp in stored.outcomes]

    async def _model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._step()
        messages = request.body["messages"]
        last_user = max(i for i, one in enumerate(messages) if one["role"] == "user")
        name = NAME.search(messages[last_user]["content"])
        assert name is not None
        results = [one["content"] for one in messages[last_user:] if one["role"] == "tool"]
        if not results:
            facts = [("remember", {"text": f"{what} of {name[1]}"}) for what in ("one", "two")]
            await tool_calls(*facts)(request, writer)
        elif len(results) == 2:
            numbers = [found[1] for found in map(NUMBER.fullmatch, results) if found]
            assert len(set(numbers)) == 2, results
            await tool_calls(("forget", {"number": int(numbers[1])}))(request, writer)
        else:
            assert results[2].endswith("is forgotten."), results
            await text(f"{name[1]} it is.")(request, writer)

    async def _on_send(self, _: Sent) -> None:
        self._step()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps == 0:
            self._due.set()

    async def _kill(self, running: Daemon) -> None:
        with suppress(TimeoutError):  # a message that the last kill has lost brings no steps
            await asyncio.wait_for(self._due.wait(), MAX_STEP_SECONDS)
        soon = self._random.uniform(0, MAX_WAIT_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), soon)
        await running.killed()

    async def _finish(self, running: Daemon, names: Sequence[str]) -> None:
        side = self._here.signal
        answers = {f"{name} it is." for name in names}
        await side.until(lambda: answers <= {sent.text for sent in side.sent}, seconds=LIFE_SECONDS)
        assert await ends_when_told(running, self._here)
