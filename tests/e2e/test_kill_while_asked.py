"""`kill -9` around a question: what was allowed happens at most once, what was not never does."""

import asyncio
import re
import sys
from collections import Counter
from contextlib import suppress
from random import Random
from typing import Final

import pytest

from bot.chat.handler import MAX_ATTEMPTS
from bot.messaging.events import Person
from conversation_store.models import ChatId
from tests.e2e.daemon_process import HASTY, Daemon, daemon, ends_when_told, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import read_store
from tests.e2e.test_approvals import notes
from tests.e2e.test_conversation import BEN
from tests.fakes.openai_server import Request, text, tool_calls
from tests.fakes.signal_side import ADA, Sent

ORDINARY_KILLS: Final = 1
FULL_KILLS: Final = 40
SEED: Final = 8
"""With it the one ordinary kill comes after answers, while notes are being written."""

LIFE_SECONDS: Final = 30.0
MAX_STEPS: Final = 9
MAX_WAIT_SECONDS: Final = 0.02

CARL: Final = Person(aci="4b1c7d10-1111-4222-8333-0123456789ab", number="+15550100009")
PEOPLE: Final = (ADA, BEN, CARL)
"""Carl says no to everything."""

NAME: Final = re.compile(r"\bn\d+\b")
NOTE: Final = re.compile(r"note (n\d+)\Z")
QUESTION: Final = re.compile(r'text: "(n\d+)')
LONG: Final = "x" * 3_000
"""In every third note: a question about it takes two messages, between which a kill may come."""

UNKNOWN_FATE: Final = "whether it took effect is unknown"


@pytest.mark.parametrize(
    "kills", [ORDINARY_KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)]
)
async def test_a_side_effect_happens_once_after_a_yes_however_often_the_bot_is_killed(
    kills: int,
) -> None:
    async with world() as here:
        trial = Trial(here, Random(SEED + kills), long_notes=kills == FULL_KILLS)
        for _ in range(kills):
            await trial.live(killed=True)
        await trial.live(killed=False)
        trial.check()


class Trial:
    """Lives of a daemon that is asked to write notes, and people who answer its questions.

    Args:
        here: both sides of the daemon.
        random: how and when its lives end.
        long_notes: questions about some notes take two messages.
    """

    def __init__(self, here: World, random: Random, *, long_notes: bool) -> None:
        self._here = here
        self._random = random
        self._long_notes = long_notes
        self._said: dict[str, tuple[Person, int]] = {}
        self._steps = 0
        self._due = asyncio.Event()
        here.model.handler = self._model
        here.signal.on_send = self._on_send
        command = f"{sys.executable} -m tests.fakes.mcp_notes {here.folder / 'notes'}"
        self._settings = environment(here, MCP__SERVERS__NOTES__COMMAND=command, LOG__LEVEL="error")

    async def live(self, *, killed: bool) -> None:
        """Start the daemon, write to it, answer it, and end it."""
        self._steps = self._random.randint(1, MAX_STEPS)
        self._due.clear()
        await self._write()
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
                async with asyncio.TaskGroup() as tasks:
                    phone = tasks.create_task(self._answer_questions())
                    await (self._kill(running) if killed else self._finish(running))
                    phone.cancel()
        await self._here.signal.wait_until_alone()

    def check(self) -> None:
        """Hold what happened against what people said."""
        written = Counter(NAME.findall(notes(self._here)))
        assert set(written.values()) == {1}, "Written twice, or nothing at all"
        answers = self._answers()
        stored = read_store(self._here.folder / "store.db")
        for name, (person, timestamp) in self._said.items():
            if timestamp not in stored.outcomes:
                continue  # it was lost with the socket, before the bot had it
            if name not in answers:
                assert stored.attempts[timestamp] > MAX_ATTEMPTS
                continue
            (answer,) = answers[name]
            assert not (person is CARL and name in written), "Written after a no"
            if name in written:
                assert "Written." in answer or UNKNOWN_FATE in answer
            else:
                assert "said no" in answer or UNKNOWN_FATE in answer, answer

    async def _write(self) -> None:
        """Let those write who do not wait for an answer; what a kill has lost is not waited for."""
        stored = read_store(self._here.folder / "store.db")
        waiting = {
            person
            for person, timestamp in self._said.values()
            if stored.outcomes.get(timestamp, "lost") is None
        }
        for person in (person for person in PEOPLE if person not in waiting):
            name = f"n{len(self._said)}"
            timestamp = await self._here.signal.say(f"note {name}", author=person)
            self._said[name] = person, timestamp

    async def _model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._step()
        messages = request.body["messages"]
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        name = NOTE.search(asked)
        assert name is not None
        last = messages[-1]
        step = (
            text(f"{name[1]}: {last['content']}")
            if last["role"] == "tool"
            else tool_calls(("notes_write", {"text": self._padded(name[1])}))
        )
        await step(request, writer)

    def _padded(self, name: str) -> str:
        is_long = self._long_notes and int(name[1:]) % len(PEOPLE) == 1
        return f"{name} {LONG}" if is_long else name

    async def _on_send(self, _: Sent) -> None:
        self._step()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps == 0:
            self._due.set()

    async def _answer_questions(self) -> None:
        """Answer every question; after a restart again, as somebody who waits would."""
        signal_side = self._here.signal
        await signal_side.until(lambda: signal_side.subscribed)
        seen: list[Sent] = []
        asked: dict[ChatId, str] = {}
        while True:
            for sent in signal_side.sent[len(seen) :]:
                seen.append(sent)
                question = QUESTION.search(sent.text)
                if question is not None:
                    asked[sent.chat] = question[1]
                if "👍" in sent.text and asked[sent.chat] not in self._answers():
                    person = next(one for one in PEOPLE if sent.chat.value == one.aci)
                    emoji = "👎" if person is CARL else "👍"
                    await signal_side.react(emoji, sent.timestamp, author=person)
                    self._step()
            await signal_side.until(lambda: len(signal_side.sent) > len(seen), seconds=LIFE_SECONDS)

    async def _kill(self, running: Daemon) -> None:
        await self._due.wait()
        soon = self._random.uniform(0, MAX_WAIT_SECONDS)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), soon)
        await running.killed()

    async def _finish(self, running: Daemon) -> None:
        signal_side = self._here.signal
        await signal_side.until(lambda: signal_side.undelivered == 0, seconds=LIFE_SECONDS)
        last_of = {person: name for name, (person, _) in self._said.items()}
        last = set(last_of.values())
        await signal_side.until(lambda: last <= self._answers().keys(), seconds=LIFE_SECONDS)
        assert await ends_when_told(running, self._here)

    def _answers(self) -> dict[str, set[str]]:
        """Return the different answers to each note."""
        answers: dict[str, set[str]] = {}
        for sent in self._here.signal.sent:
            name, colon, words = sent.text.partition(": ")
            if colon and name in self._said:
                assert sent.chat == ChatId.direct(self._said[name][0].aci)
                answers.setdefault(name, set()).add(words)
        return answers
