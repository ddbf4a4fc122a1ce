"""People who write all the time, and the only right answer to each of their messages."""

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

from bot.commands.base import UNKNOWN_COMMAND
from bot.messaging.events import Person
from bot.messaging.formatting import split
from conversation_store.models import ChatId
from tests.fakes.openai_server import Body, Request, text, tool_calls
from tests.fakes.signal_side import Sent, SignalSide

PEOPLE: Final = tuple(
    Person(aci=f"0d1e2f30-0000-4000-8000-{n:012}", number=f"+1555020{n:04}", name=f"Person {n}")
    for n in range(6)
)
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FIRST_TIMESTAMP: Final = 1_795_000_000_000
WAITING_IN_CHAT: Final = 4
"""Messages without an answer up to which a chat writes more."""

QUESTION: Final = re.compile(r"(q\d+): (.*)\Z")
PRODUCT: Final = re.compile(r"what is (\d+)\*(\d+)\?")
A_LOT: Final = "tell me a lot"

Happened = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Question:
    """A message to the bot, and the parts of its answer; `name` is unique."""

    name: str
    chat: ChatId
    timestamp: int
    answer: tuple[str, ...]
    needs_call: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model was asked: about which question, and whether with a tool's result."""

    name: str
    has_result: bool


class Traffic:
    """Writes to the bot in seven chats: again as soon as an answer comes.

    Args:
        signal: where they write.
        random: what they write.
        happened: told about each step of the traffic: a send, a request to the model.
    """

    def __init__(self, signal: SignalSide, random: Random, happened: Happened) -> None:
        self.said: list[Question] = []
        self.asked: list[Asked] = []
        self.goes_on = True
        self._signal = signal
        self._random = random
        self._happened = happened
        self._last_parts: set[str] = set()
        self._writers = {ChatId.direct(person.aci): ((person,), None) for person in PEOPLE} | {
            ChatId.group(GROUP): (PEOPLE[:3], GROUP)
        }
        signal.on_send = self._on_send

    async def write_everywhere(self, unanswered: Callable[[Question], bool]) -> None:
        """Let each chat write until it has its share of unanswered messages."""
        open_questions = [question.chat for question in self.said if unanswered(question)]
        for chat in self._writers:
            for _ in range(WAITING_IN_CHAT - open_questions.count(chat)):
                await self.write(chat)

    async def last_words(self) -> frozenset[str]:
        """Write once more in each chat, and return the answers; then nobody writes any more."""
        self.goes_on = False
        last = [await self.write(chat, "good night") for chat in self._writers]
        return frozenset(question.answer[-1] for question in last)

    async def write(self, chat: ChatId, words: str | None = None) -> Question:
        """Write one message in a chat."""
        number = len(self.said)
        name = f"q{number}"
        said, answer = self._words(name) if words is None else _plain(name, words)
        needs_call = PRODUCT.search(said) is not None
        question = Question(name, chat, FIRST_TIMESTAMP + number, answer, needs_call)
        # Noted before it is written: the answer may come at once.
        self.said.append(question)
        self._last_parts.add(answer[-1])
        people, group = self._writers[chat]
        await self._signal.say(
            said, author=self._random.choice(people), group=group, timestamp=question.timestamp
        )
        return question

    async def model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer as a perfect model would; a step for the fake endpoint."""
        self._happened()
        messages = request.body["messages"]
        question = next(m for m in reversed(messages) if m["role"] == "user")
        found = QUESTION.search(question["content"])
        assert found is not None
        name, words = found.groups()
        results = [m["content"] for m in messages[messages.index(question) :] if _is_result(m)]
        self.asked.append(Asked(name, bool(results)))
        product = PRODUCT.match(words)
        if product is None:
            await text(_a_lot(name) if words == A_LOT else f"{name} heard")(request, writer)
        elif results:
            await text(f"{name} comes to {results[-1]}")(request, writer)
        else:
            expression = {"expression": f"{product[1]}*{product[2]}"}
            await tool_calls(("calculate", expression))(request, writer)

    async def _on_send(self, sent: Sent) -> None:
        self._happened()
        if self.goes_on and sent.text in self._last_parts:
            await self.write(sent.chat)

    def _words(self, name: str) -> tuple[str, tuple[str, ...]]:
        match self._random.randrange(6):
            case 0 | 1:
                left, right = self._random.randrange(1000), self._random.randrange(1000)
                asked = f"{name}: what is {left}*{right}?"
                return asked, (f"{name} comes to {left * right}",)
            case 2:
                return f"{name}: {A_LOT}", split(_a_lot(name))
            case 3:
                return f"!{name}", (UNKNOWN_COMMAND,)
            case _:
                return _plain(name, "hello")


def answers(sent: Iterable[Sent]) -> list[Sent]:
    """Leave out signs of progress."""
    return [one for one in sent if not one.text.startswith("🔧")]


def _plain(name: str, words: str) -> tuple[str, tuple[str, ...]]:
    return f"{name}: {words}", (f"{name} heard",)


def _a_lot(name: str) -> str:
    return "\n\n".join(f"{name} paragraph {number}: {'word ' * 200}." for number in range(3))


def _is_result(message: Body) -> bool:
    return bool(message["role"] == "tool")
