"""A bot process that can be held at each of its steps to the outside, for kills at known moments.

The fakes of Signal and of the model tell the stage about each step. A case is a chat that is to be
held at one of its steps: it gets no reply to this step or to any later one, until the process is
killed. The cases of the next lives are not held.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from aiohttp import web

from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.daemon_process import HASTY, Daemon, daemon, environment
from tests.e2e.running_bot import World
from tests.fakes import openai_server
from tests.fakes.openai_server import Request, text, words_of
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi, chat_at
from tests.fakes.signal_side import Sent, SignalSide

LIFE_SECONDS: Final = 60.0
ANSWER_AGAIN_SECONDS: Final = 0.2
"""Time after which a waiting person reacts to a question again."""

WORD: Final = re.compile(r"\bn(\d\d\d)v\d+\b")
"""Words of one case: its number, and the number of its message."""

PROBE: Final = 999
"""The number of a person whose chat is never held."""

NOT_ANSWERS: Final = ("❓", "🔧")
LAST: Final = 9
"""The version of each person's last message."""


class Step(StrEnum):
    """Step of the bot to the outside."""

    ASKS = "asks the model"
    SENDS = "sends a message that Signal has not taken yet"
    SENT = "has sent a message that Signal has taken"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the model: its words and the results of its tools."""

    words: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(eq=False)
class Case:
    """A chat that is held at one of its steps.

    Attributes:
        number: of the case and its person.
        moment: the step at which it is held in the first life, from 1; 0: it is not held.
        steps: of all lives.
        timestamps: of the person's messages, by version.
        asked: requests in this life, with a reply or without.
        question: the timestamp of a question of the bot that has no answer.
    """

    number: int
    model: Callable[["Case", Asked], openai_server.Step]
    moment: int = 0
    steps: list[Step] = field(default_factory=list)
    is_held: bool = False
    timestamps: dict[int, int] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    question: int | None = None

    @property
    def person(self) -> Person:
        """Who writes."""
        return Person(aci=f"0d1e2f30-0000-4000-8000-{self.number:012}", name=f"P{self.number}")

    def word(self, version: int = 0) -> str:
        """Return the word of one of the person's messages."""
        return f"n{self.number:03}v{version}"


class HeldSignal(SignalSide):
    """Fake of signal-cli's daemon that tells the stage before and after it takes a message."""

    stage: "Stage"

    async def _record(self, sent: Sent) -> None:
        await super()._record(sent)
        await self.stage.sent(sent.chat, sent.text, sent.timestamp)

    async def ready(self) -> None:
        """Wait until the bot listens."""
        await self.until(lambda: self.subscribed, seconds=LIFE_SECONDS)

    async def gone(self) -> None:
        """Wait until the killed bot's connections are closed."""
        await self.wait_until_alone()

    async def open(self, stage: "Stage") -> dict[str, str]:
        """Listen; return the bot's settings for this server."""
        self.stage = stage
        self.on_send = lambda sent: stage.sends(sent.chat, sent.text)
        await self.come_back()
        return {}

    async def close(self) -> None:
        """Stop listening."""
        await self.go_away()


class HeldRest(SignalRestApi):
    """Fake of signal-cli-rest-api that tells the stage before and after it takes a message."""

    stage: "Stage"

    async def _send(self, request: web.Request) -> web.Response:
        body = await request.json()
        chat = chat_at(body["recipients"][0])
        await self.stage.sends(chat, body["message"])
        count = len(self.sent)
        response = await super()._send(request)
        mine = next(one for one in self.sent[count:] if one.recipient == body["recipients"][0])
        await self.stage.sent(chat, mine.text, mine.timestamp)
        return response

    async def ready(self) -> None:
        """Wait until the bot listens."""
        await self.until(lambda: self.receivers > 0, seconds=LIFE_SECONDS)

    async def gone(self) -> None:
        """Wait until the killed bot's connections are closed."""
        await self.until(lambda: self.receivers == 0 and self.in_flight == 0)

    async def open(self, stage: "Stage") -> dict[str, str]:
        """Listen; return the bot's settings for this server."""
        self.stage = stage
        await self.start()
        return {"SIGNAL__URL": self.url, "SIGNAL__PHONE_NUMBER": NUMBER}

    async def close(self) -> None:
        """Stop listening."""
        await self.stop()


class Stage:
    """Cases, the fakes around a bot process, and its lives.

    Args:
        world: where the bot keeps its store, and its model.
        signal: the fake of Signal.
        cases: the chats.

    Attributes:
        settings: of the bot.
    """

    def __init__(self, world: World, signal: HeldSignal | HeldRest, cases: Sequence[Case]) -> None:
        self.world, self.signal, self.cases = world, signal, cases
        self.settings: Mapping[str, str] = {}
        self._holds = True
        self._probe = Case(PROBE, lambda case, asked: text(" ".join(asked.words)))
        self._probes = 0
        self._by_number = {case.number: case for case in (*cases, self._probe)}
        self._by_chat = {case.person.aci: case for case in self._by_number.values()}
        self._over = asyncio.Event()
        world.model.handler = self._model

    # Lives

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[Daemon]:
        """Run the bot inside the block, among people who answer its questions."""
        self._over = asyncio.Event()
        for case in self.cases:
            case.asked.clear()
            case.is_held = False
        folder = self.world.folder
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self.settings, folder=folder, module=HASTY) as running:
                async with asyncio.TaskGroup() as tasks:
                    people = tasks.create_task(self._answer_questions())
                    await self.signal.ready()
                    yield running
                    people.cancel()
            self._holds = False
            self._over.set()
            await self.signal.gone()
        assert not running.stderr, running.stderr

    async def live_briefly(self, seconds: float) -> None:
        """Start the bot and kill it so many seconds later."""
        async with daemon(self.settings, folder=self.world.folder, module=HASTY) as running:
            await asyncio.sleep(seconds)
            await running.killed()
        await self.signal.gone()

    async def all_held(self) -> None:
        """Wait until each case is held at its moment."""
        with suppress(TimeoutError):
            await self.until(lambda: not self._free())
        free = [(case.word(), case.moment, case.steps) for case in self._free()]
        assert not free, f"never came to that step: {free}"

    def _free(self) -> list[Case]:
        return [case for case in self.cases if case.moment and not case.is_held]

    async def everything_read(self) -> None:
        """Wait until the bot has read all that people have done so far."""
        self._probes += 1
        word = self._probe.word(self._probes)
        await self.signal.say(word, author=self._probe.person)
        await self.until_answered(self._probe, word)

    def let_go(self) -> None:
        """Release all cases that were held."""
        for case in self.cases:
            case.is_held = False
        self._holds = False
        self._over.set()

    async def until_answered(self, case: Case, *words: str) -> None:
        """Wait until a chat has read each of some words in answers."""
        await self.until(lambda: all(any(w in t for t in self.texts(case)) for w in words))

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        await self.signal.until(holds, seconds=LIFE_SECONDS / 2)

    # People

    async def say(self, case: Case, version: int = 0) -> None:
        """Write one of the case's words."""
        case.timestamps[version] = await self.signal.say(case.word(version), author=case.person)

    def texts(self, case: Case) -> list[str]:
        """Return the answers that a chat shows now, oldest first."""
        deleted = {timestamp for _, timestamp in self.signal.deleted}
        return [sent.text for sent in self._answers(case) if sent.timestamp not in deleted]

    def files(self, case: Case) -> list[str]:
        """Return the names of all files that were sent to a chat."""
        return [str(file.name) for sent in self._answers(case) for file in sent.attachments]

    def _answers(self, case: Case) -> list[Any]:
        mine = (one for one in self.signal.sent if _chat_of(one).value == case.person.aci)
        return [one for one in mine if WORD.search(one.text) and one.text[0] not in NOT_ANSWERS]

    async def _answer_questions(self) -> None:
        while True:
            for case in self.cases:
                if case.question is not None and not case.is_held:
                    await self.signal.react("👍", case.question, author=case.person)
            await asyncio.sleep(ANSWER_AGAIN_SECONDS)

    # The bot

    async def sends(self, chat: ChatId, words: str) -> None:
        """Note that the bot is about to send."""
        if not words.startswith("🔧"):
            await self._step(self._by_chat[chat.value], Step.SENDS)

    async def sent(self, chat: ChatId, words: str, timestamp: int) -> None:
        """Note that Signal has taken a message; let the phone confirm it."""
        case = self._by_chat[chat.value]
        await self.signal.deliver_receipt(timestamp, case.person)
        if not words.startswith("🔧"):
            case.question = timestamp if words.startswith("❓") else None
            await self._step(case, Step.SENT)

    async def _model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        asked, case = self._asked(request)
        case.asked.append(asked)
        await self._step(case, Step.ASKS)
        is_last = asked.words[-1:] == (case.word(LAST),)
        answer = text(f"{' '.join(asked.words)} heard") if is_last else case.model(case, asked)
        await answer(request, writer)

    def _asked(self, request: Request) -> tuple[Asked, Case]:
        """Return the words and results of a request since the last answer, with its case."""
        turn: list[Mapping[str, Any]] = []
        for message in reversed(request.body["messages"][1:]):
            if message["role"] == "assistant" and WORD.search(words_of(message["content"])):
                break
            turn.insert(0, message)
        said = " ".join(words_of(m["content"]) for m in turn if m["role"] == "user")
        results = tuple(words_of(m["content"]) for m in turn if m["role"] == "tool")
        found = tuple(dict.fromkeys(one[0] for one in WORD.finditer(said)))
        assert found, f"The model was asked about nothing: {turn}"
        return Asked(found, results), self._by_number[int(found[-1][1:4])]

    async def _step(self, case: Case, step: Step) -> None:
        case.steps.append(step)
        case.is_held |= self._holds and len(case.steps) == case.moment
        await self.signal._announce()
        if case.is_held:
            over = self._over
            await over.wait()
            if case.is_held:
                raise asyncio.CancelledError  # its caller is dead


@asynccontextmanager
async def stage(world: World, transport: str, cases: Sequence[Case]) -> AsyncIterator[Stage]:
    """Provide a stage with one of the two transports, and a tool that writes notes."""
    signal = HeldSignal(world.signal.path) if transport == "signal-cli" else HeldRest()
    the_stage = Stage(world, signal, cases)
    await world.signal.go_away()
    more = await signal.open(the_stage)
    notes = f"{sys.executable} -m tests.fakes.mcp_notes {world.folder / 'notes'}"
    the_stage.settings = environment(
        world,
        LLM__MAX_CONCURRENCY="1000",
        LOG__LEVEL="error",
        MCP__SERVERS__NOTES__COMMAND=notes,
        TOOLS__WORKSPACE__FOR="everyone",
        **more,
    )
    try:
        yield the_stage
    finally:
        await signal.close()


def _chat_of(sent: Any) -> ChatId:
    return sent.chat if isinstance(sent, Sent) else chat_at(sent.recipient)
