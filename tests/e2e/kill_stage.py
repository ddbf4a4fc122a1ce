"""A bot process whose steps to the outside can be held in each chat, for stories about kills.

The fakes of Signal, of the model and of a tool tell the stage about each step. A case is a chat
that is to be held at one of its steps. A case that is held gets no reply to this step or to any
later one, until the process is killed.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from aiohttp import web

from bot.chat.plan import INSTEAD_OF_WORDS
from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.daemon_process import HASTY, Daemon, daemon, environment
from tests.e2e.minds import is_of_helper, task_of
from tests.e2e.running_bot import World
from tests.fakes import openai_server
from tests.fakes.json_rpc_server import Client, Json
from tests.fakes.openai_server import Request, text, words_of
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi, chat_at
from tests.fakes.signal_side import Group, Sent, SignalSide

LIFE_SECONDS: Final = 60.0
ANSWER_AGAIN_SECONDS: Final = 0.2
"""Time after which a waiting person reacts to a question again."""

WORD: Final = re.compile(r"\bn(\d\d\d)v\d+\b")
"""Words of one case: its number, and the number of its message."""

PROBE: Final = 999
"""The number of a person whose chat is never held."""

QUESTION: Final = "❓"
REACTED: Final = INSTEAD_OF_WORDS.partition("{")[0]
PROGRESS: Final = "🔧"
LAST: Final = 9
"""The version of each person's last message."""


class Step(StrEnum):
    """Step of the bot to the outside."""

    ASKS = "asks the model"
    CALLS = "calls the tool, which has done nothing yet"
    CALLED = "has called the tool, which has done its work"
    SENDS = "sends a message that Signal has not taken yet"
    SENT = "has sent a message that Signal has taken"


class Phone(StrEnum):
    """When a person's phone confirms a message."""

    PROMPT = "at once"
    LATE = "after the bot has sent again what was in doubt"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the model: its words and the results of its tools.

    Attributes:
        task: of a helper; empty for the turn itself.
    """

    words: tuple[str, ...]
    results: tuple[str, ...]
    task: str = ""


@dataclass(eq=False)
class Case:
    """A chat that is held at one of its steps.

    Attributes:
        number: of the case and its person.
        moment: the step at which it is held in the first life, from 1; 0: it is not held.
        in_group: the chat is a group.
        steps: those of this life since the case was armed.
        is_armed: steps count.
        is_held: no step gets a reply any more in this life.
        timestamps: of the person's messages, by version.
        asked: requests in this life, with a reply or without.
        replied: those of all lives that got a reply, but for the last before a kill in the open.
        tried: how often the model was about to answer in words.
        called: how often the tool did its work.
        question: the timestamp of a question of the bot that has no answer.
    """

    number: int
    model: Callable[["Case", Asked], openai_server.Step]
    moment: int = 0
    phone: Phone = Phone.PROMPT
    in_group: bool = False
    may_disappear: bool = False
    steps: list[Step] = field(default_factory=list)
    is_armed: bool = False
    is_held: bool = False
    timestamps: dict[int, int] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    replied: list[Asked] = field(default_factory=list)
    tried: int = 0
    called: int = 0
    question: int | None = None

    @property
    def person(self) -> Person:
        """Who writes."""
        return Person(aci=f"0d1e2f30-0000-4000-8000-{self.number:012}", name=f"P{self.number}")

    @property
    def people(self) -> list[Person]:
        """The people in the chat."""
        mate = Person(aci=f"0d1e2f31-0000-4000-8000-{self.number:012}")
        return [self.person, mate] if self.in_group else [self.person]

    @property
    def group(self) -> str | None:
        """The id of the group where the person writes."""
        return base64.b64encode(f"{self.number:032}".encode()).decode() if self.in_group else None

    @property
    def chat(self) -> str:
        """The value of the chat's id."""
        return self.group or self.person.aci

    def word(self, version: int = 0) -> str:
        """Return the word of one of the person's messages."""
        return f"n{self.number:03}v{version}"


class HeldSignal(SignalSide):
    """Fake of signal-cli's daemon that tells the stage before and after it takes a message."""

    stage: "Stage"

    async def _record(self, sent: Sent) -> None:
        await super()._record(sent)
        await self.stage.sent(sent.chat, sent.text, sent.timestamp)

    async def _send_reaction(self, client: Client, params: Json) -> object:
        chat = self._reachable_chat(params)
        await self.stage.reacts(chat, Step.SENDS)
        answer = await super()._send_reaction(client, params)
        await self.stage.reacts(chat, Step.SENT)
        return answer

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

    async def _react(self, request: web.Request) -> web.Response:
        chat = chat_at((await request.json())["recipient"])
        await self.stage.reacts(chat, Step.SENDS)
        response = await super()._react(request)
        await self.stage.reacts(chat, Step.SENT)
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
        self.world = world
        self.signal = signal
        self.cases = cases
        self._holds = True
        self.settings: Mapping[str, str] = {}
        self._probe = Case(PROBE, lambda case, asked: text(" ".join(asked.words)))
        self._probes = 0
        self._by_number = {case.number: case for case in (*cases, self._probe)}
        self._by_chat = {case.chat: case for case in (*cases, self._probe)}
        self._over = asyncio.Event()
        self._unconfirmed: list[tuple[Case, int]] = []
        for case in cases:
            if case.group is not None:
                signal.groups[case.group] = Group(members={one.aci: one for one in case.people})
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
        return [case for case in self.cases if not (case.is_held or case.may_disappear)]

    async def everything_read(self) -> None:
        """Wait until the bot has read all that people have done so far."""
        self._probes += 1
        word = self._probe.word(self._probes)
        await self.signal.say(word, author=self._probe.person)
        await self.until(lambda: any(word in shown.split() for shown in self.texts(self._probe)))

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

    async def say(
        self, case: Case, words: str | None = None, version: int = 0, **more: Any
    ) -> None:
        """Write the case's word, or other words."""
        case.timestamps[version] = await self.signal.say(
            words or case.word(version), author=case.person, group=case.group, **more
        )

    async def confirm_late(self) -> None:
        """Confirm all messages on phones that are late."""
        late, self._unconfirmed = self._unconfirmed, []
        for case, timestamp in late:
            await self._confirm(case, timestamp)

    async def _confirm(self, case: Case, timestamp: int) -> None:
        for person in case.people:
            await self.signal.deliver_receipt(timestamp, person)

    def texts(self, case: Case) -> list[str]:
        """Return the answers that a chat shows now, oldest first."""
        shown: dict[int, str] = {}
        roots: dict[int, int] = {}
        for sent in self.signal.sent:
            if _chat_of(sent).value == case.chat and not sent.text.startswith((PROGRESS, QUESTION)):
                root = roots.get(sent.replaces or 0, sent.timestamp)
                roots[sent.timestamp] = root
                shown[root] = sent.text
        for _, timestamp in self.signal.deleted:
            shown.pop(roots.get(timestamp, 0), None)
        return [words for words in shown.values() if WORD.search(words)]

    def files(self, case: Case) -> list[tuple[str, ...]]:
        """Return the names of the files of each answer that was sent to a chat."""
        return [
            tuple(str(file.name) for file in sent.attachments)
            for sent in self.signal.sent
            if _chat_of(sent).value == case.chat and WORD.search(sent.text)
            if not sent.text.startswith((PROGRESS, QUESTION))
        ]

    async def _answer_questions(self) -> None:
        while True:
            for case in self.cases:
                if case.question is not None and not case.is_held:
                    words = self.signal.text_sent(case.question)
                    emoji = "👍" if "👍" in words else "1️⃣"
                    await self.signal.react(
                        emoji, case.question, author=case.person, group=case.group
                    )
            await asyncio.sleep(ANSWER_AGAIN_SECONDS)

    # The bot

    async def sends(self, chat: ChatId, words: str) -> None:
        """Note that the bot is about to send."""
        if (case := self._by_chat.get(chat.value)) and not words.startswith(PROGRESS):
            await self._step(case, Step.SENDS)

    async def sent(self, chat: ChatId, words: str, timestamp: int) -> None:
        """Note that Signal has taken a message; let the phone confirm it."""
        case = self._by_chat.get(chat.value)
        if case is None:
            return
        if case.phone is Phone.PROMPT:
            await self._confirm(case, timestamp)
        elif case.phone is Phone.LATE:
            self._unconfirmed.append((case, timestamp))
        if words.startswith(PROGRESS):
            return
        case.question = timestamp if words.startswith(QUESTION) else None
        await self._step(case, Step.SENT)

    async def reacts(self, chat: ChatId, step: Step) -> None:
        """Note that the bot is about to react, or that Signal has taken the reaction."""
        if case := self._by_chat.get(chat.value):
            await self._step(case, step)

    async def calls(self, words: str) -> str:
        """Do the work of the tool."""
        found = WORD.search(words)
        assert found is not None
        case = self._by_number[int(found[1])]
        await self._step(case, Step.CALLS)
        case.called += 1
        await self._step(case, Step.CALLED)
        return "Written."

    async def _model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        asked, case = self._asked(request)
        case.asked.append(asked)
        await self._step(case, Step.ASKS)
        if asked.words[-1:] == (case.word(LAST),):
            answer = text(f"{' '.join(asked.words)} heard")
        else:
            answer = case.model(case, asked)
        await answer(request, writer)
        case.replied.append(asked)

    def _asked(self, request: Request) -> tuple[Asked, Case]:
        """Return the words and results of a request since the last answer, with its case."""
        turn: list[Mapping[str, Any]] = []
        for message in reversed(request.body["messages"][1:]):
            words = words_of(message["content"])
            if message["role"] == "assistant" and (WORD.search(words) or words.startswith(REACTED)):
                break
            turn.insert(0, message)
        said = " ".join(words_of(m["content"]) for m in turn if m["role"] == "user")
        results = tuple(words_of(m["content"]) for m in turn if m["role"] == "tool")
        found = tuple(dict.fromkeys(one[0] for one in WORD.finditer(said)))
        assert found, f"The model was asked about nothing: {turn}"
        case = self._by_number[int(found[-1][1:4])]
        task = task_of(request.body) if is_of_helper(request.body) else ""
        return Asked(found, results, task), case

    async def _step(self, case: Case, step: Step) -> None:
        if case.is_armed:
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
    async with notes_server(the_stage.calls) as url:
        more = await signal.open(the_stage)
        the_stage.settings = environment(
            world,
            ACCESS__GROUPS="always",
            LLM__MAX_CONCURRENCY="1000",
            LOG__LEVEL="error",
            MCP__SERVERS__NOTES__URL=url,
            TOOLS__WORKSPACE__FOR="everyone",
            **more,
        )
        try:
            yield the_stage
        finally:
            await signal.close()


def _chat_of(sent: Any) -> ChatId:
    return sent.chat if isinstance(sent, Sent) else chat_at(sent.recipient)


WRITE: Final = {
    "name": "write",
    "description": "Write a note.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


@asynccontextmanager
async def notes_server(write: Callable[[str], Awaitable[str]]) -> AsyncIterator[str]:
    """Serve an MCP tool with a side effect, and yield its URL."""

    async def answer(request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        if "id" not in asked:
            return web.Response(status=202)
        result: Mapping[str, Any]
        match asked["method"]:
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "notes", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [WRITE]}
            case "tools/call":
                said = await write(asked["params"]["arguments"]["text"])
                result = {"content": [{"type": "text", "text": said}]}
            case _:
                result = {}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    app = web.Application()
    app.router.add_route("*", "/mcp", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()
