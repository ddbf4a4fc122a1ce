"""`kill -9` around the model's questions: each message gets one answer, to what a person chose."""

import asyncio
import re
from contextlib import suppress
from random import Random
from typing import Final

import pytest

from conversation_store.models import ChatId
from tests.e2e.daemon_process import HASTY, Daemon, daemon, ends_when_told, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import read_store
from tests.e2e.test_kill_while_asked import LIFE_SECONDS, PEOPLE
from tests.fakes.openai_server import Request, text, tool_calls
from tests.fakes.signal_side import Sent

ORDINARY_KILLS: Final = 2
FULL_KILLS: Final = 40
SEED: Final = 3
MAX_STEPS: Final = 8
MAX_WAIT_SECONDS: Final = 0.02

ASKED: Final = re.compile(r"paint (n\d+)\Z")
QUESTION: Final = re.compile(r"❓ Which colour for (n\d+)\?")
COLOURS: Final = ("Red", "Green", "Blue")


@pytest.mark.parametrize(
    "kills", [ORDINARY_KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)]
)
async def test_a_question_is_answered_once_however_often_the_bot_is_killed(kills: int) -> None:
    async with world() as here:
        trial = Trial(here, Random(SEED + kills))
        for _ in range(kills):
            await trial.live(killed=True)
        await trial.live(killed=False)
        trial.check()


class Trial:
    """Lives of a daemon whose model asks about everything, and people who choose.

    Args:
        here: both sides of the daemon.
        random: how and when its lives end.
    """

    def __init__(self, here: World, random: Random) -> None:
        self._here = here
        self._random = random
        self._said: dict[str, tuple[ChatId, int]] = {}
        self._steps = 0
        self._due = asyncio.Event()
        here.model.handler = self._model
        here.signal.on_send = self._on_send
        self._settings = environment(here, LOG__LEVEL="error", BOT__STEERING="false")

    async def live(self, *, killed: bool) -> None:
        """Start the daemon, write to it, answer it, and end it."""
        self._steps = self._random.randint(1, MAX_STEPS)
        self._due.clear()
        for person in PEOPLE:
            name = f"n{len(self._said)}"
            timestamp = await self._here.signal.say(f"paint {name}", author=person)
            self._said[name] = ChatId.direct(person.aci), timestamp
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
                async with asyncio.TaskGroup() as tasks:
                    phone = tasks.create_task(self._choose())
                    await (self._kill(running) if killed else self._finish(running))
                    phone.cancel()
        await self._here.signal.wait_until_alone()

    def check(self) -> None:
        """Hold what was answered against what people chose."""
        stored = read_store(self._here.folder / "store.db")
        assert stored.open_calls == 0
        answers = self._answers()
        for name, (_, timestamp) in self._said.items():
            if timestamp in stored.outcomes:  # else it was lost with the socket
                assert answers[name] == {f"The person chose: {_choice(name)}"}, name

    async def _model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self._step()
        messages = request.body["messages"]
        asked = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        name = ASKED.search(asked)
        if name is None:
            step = text("Thank you.")  # an answer that came after another one
        elif messages[-1]["role"] == "tool":
            step = text(f"{name[1]}: {messages[-1]['content']}")
        else:
            question = {"question": f"Which colour for {name[1]}?", "options": COLOURS}
            step = tool_calls(("ask_user", question))
        await step(request, writer)

    async def _on_send(self, _: Sent) -> None:
        self._step()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps == 0:
            self._due.set()

    async def _choose(self) -> None:
        """Answer every question; after a restart again, as somebody who waits would."""
        signal_side = self._here.signal
        await signal_side.until(lambda: signal_side.subscribed)
        seen: list[Sent] = []
        while True:
            for sent in signal_side.sent[len(seen) :]:
                seen.append(sent)
                question = QUESTION.match(sent.text)
                if question is not None and question[1] not in self._answers():
                    person = next(one for one in PEOPLE if sent.chat.value == one.aci)
                    choice = _choice(question[1])
                    await signal_side.say(choice, author=person, quote=sent.timestamp)
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
        last = {f"n{len(self._said) - place}" for place in range(1, len(PEOPLE) + 1)}
        await signal_side.until(lambda: last <= self._answers().keys(), seconds=LIFE_SECONDS)
        assert await ends_when_told(running, self._here)

    def _answers(self) -> dict[str, set[str]]:
        """Return the different answers to each message."""
        answers: dict[str, set[str]] = {}
        for sent in self._here.signal.sent:
            name, colon, words = sent.text.partition(": ")
            if colon and name in self._said:
                assert sent.chat == self._said[name][0]
                answers.setdefault(name, set()).add(words)
        return answers


def _choice(name: str) -> str:
    """Return what is chosen for a name."""
    return COLOURS[int(name[1:]) % len(COLOURS)]
