"""`kill -9` while people steer, retry and undo: nothing is lost, answered twice, or half undone."""

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any, Final

import apsw
import pytest

from bot.messaging.events import Person
from tests.e2e.daemon_process import HASTY, daemon, ends_when_told, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import copied
from tests.e2e.test_kill import LIFE_SECONDS
from tests.e2e.traces import files_of, rows_with
from tests.fakes.openai_server import Request, text, tool_calls
from tests.fakes.signal_side import ADA, Sent

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
ORDINARY_KILLS: Final = 2
FULL_KILLS: Final = 60
MAX_STEPS: Final = 12
"""Requests to the model and messages of the bot, after which it is killed, or when it is idle."""
BUSY_SECONDS: Final = 8.0
"""It is killed in any case, however slow the machine is."""
MAX_UNANSWERED: Final = 20
"""More would be refused by a mailbox that is full."""
CALCULATE: Final = ("calculate", {"expression": "127*43"})
CALLS: Final = 0.5
"""How often the model calls a tool instead of answering."""
LOOK_EVERY_SECONDS: Final = 0.05


@pytest.mark.parametrize(
    "kills", [ORDINARY_KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)]
)
async def test_second_thoughts_are_had_once_or_not_at_all_however_often_the_bot_is_killed(
    kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world() as here:
        trial = Trial(here, seed=kills)
        for _ in range(kills):
            await trial.live_and_be_killed()
        await trial.live_in_peace()
        trial.check()
    with capsys.disabled():
        print(f"\n{kills} kills: {dict(trial.outcomes)}")  # noqa: T201 - part of the result


class Trial:
    """Lives of a daemon on one store, and what two people write meanwhile.

    Args:
        here: both sides of the daemon.
        seed: of what they write, and of how the lives end.

    Attributes:
        outcomes: how often messages ended how.
    """

    def __init__(self, here: World, *, seed: int) -> None:
        self._here = here
        self._random = Random(seed)
        self._steps = 0
        self._due = asyncio.Event()
        self._words: dict[tuple[str, int], str] = {}
        self._replies = 0
        self.outcomes: Counter[str] = Counter()
        here.model.handler = self._answer
        here.signal.on_send = self._sent
        self._settings = environment(here, LOG__LEVEL="error")

    async def live_and_be_killed(self) -> None:
        """Let people write, start the daemon, and kill it."""
        self._steps, self._due = self._random.randint(1, MAX_STEPS), asyncio.Event()
        for person in (ADA, BEN):
            await self._write(person)
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
                with suppress(TimeoutError):
                    async with asyncio.timeout(BUSY_SECONDS):
                        await self._due_or_idle()
                    await asyncio.wait_for(asyncio.Event().wait(), self._random.uniform(0, 0.01))
                await running.killed()

    async def _due_or_idle(self) -> None:
        while self._is_at_work() and not self._due.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_SECONDS):
                    await self._due.wait()

    async def live_in_peace(self) -> None:
        """Start the daemon, let it finish, and tell it to stop."""
        await self._here.signal.say("The end.")  # before its answer, it is not to be stopped
        async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
            async with asyncio.timeout(LIFE_SECONDS):
                while self._is_at_work():  # noqa: ASYNC110 - another process's file has no event
                    await asyncio.sleep(LOOK_EVERY_SECONDS)
            assert await ends_when_told(running, self._here)

    def check(self) -> None:
        """Hold the store and the phones against what was written."""
        with copied(self._here.folder / "store.db") as database:
            rows = _select(
                database, "SELECT id, author, timestamp, outcome, turn_id, retries FROM inbox"
            )
            said = _select(database, "SELECT turn_id, content FROM messages WHERE role = 'user'")
            sent = _select(
                database,
                "SELECT inbox_id, signal_timestamp, replaces, kind FROM outbox"
                " WHERE state = 'sent' AND kind != 'removal'",
            )
        self.outcomes.update(row[3] for row in rows)
        undone = {row[0] for row in rows if row[3] == "undone"}
        for _, author, timestamp, outcome, _, _ in rows:
            word = self._words.get((author, timestamp))
            if word is None:
                continue
            turns = {turn_id for turn_id, content in said if word in content}
            if outcome == "undone":
                assert not turns
                assert not rows_with(self._here, word)
                assert word.encode() not in files_of(self._here)
            else:
                assert outcome in {"answered", "joined", "failed"}, outcome
                assert len(turns) == 1, (word, turns)
        replaced = {row[2] for row in sent}
        deleted = {timestamp for _, timestamp in self._here.signal.deleted}
        standing = {row[1] for row in sent if row[0] in undone} - replaced
        assert standing <= deleted

    async def _write(self, person: Person) -> None:
        if self._unanswered() > MAX_UNANSWERED:
            return
        for _ in range(self._random.randint(1, 4)):
            what = self._random.random()
            if what < 0.6:
                word = f"word{len(self._words):04}x"
                timestamp = await self._here.signal.say(f"What is {word}?", author=person)
                self._words[person.aci, timestamp] = word
            else:
                command = "!retry" if what < 0.85 else "!undo"
                await self._here.signal.say(command, author=person)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._step()
        self._replies += 1
        calls = request.body.get("tool_choice") != "none" and self._random.random() < CALLS
        step = tool_calls(CALCULATE) if calls else text(f"reply {self._replies}")
        await step(request, writer)

    async def _sent(self, _: Sent) -> None:
        self._step()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps == 0:
            self._due.set()

    def _unanswered(self) -> int:
        path = self._here.folder / "store.db"
        if not path.exists():
            return 0
        with copied(path) as database:
            if not _select(database, "SELECT 1 FROM sqlite_schema WHERE name = 'inbox'"):
                return 0
            return len(_select(database, "SELECT 1 FROM inbox WHERE state = 'waiting'"))

    def _is_at_work(self) -> bool:
        if self._here.signal.undelivered:
            return True
        with copied(self._here.folder / "store.db") as database:
            if not _select(database, "SELECT 1 FROM sqlite_schema WHERE name = 'inbox'"):
                return True
            return bool(
                _select(database, "SELECT 1 FROM inbox WHERE state = 'waiting'")
                or _select(database, "SELECT 1 FROM outbox WHERE state = 'waiting'")
            )


def _select(database: apsw.Connection, sql: str) -> list[Any]:
    return database.execute(sql).fetchall()
