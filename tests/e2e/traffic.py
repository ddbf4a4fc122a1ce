"""People who write all the time, and the only right answer to each of their messages."""

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bot.commands.base import UNKNOWN_COMMAND
from bot.llm.openai import HEARD
from bot.signal.events import Person
from bot.signal.formatting import split
from conversation_store.models import ChatId
from tests.fakes.openai_server import Body, Request, text, tool_calls, words_of
from tests.fakes.signal_side import Sent, SignalSide

PEOPLE: Final = tuple(
    Person(aci=f"0d1e2f30-0000-4000-8000-{n:012}", number=f"+1555020{n:04}", name=f"Person {n}")
    for n in range(6)
)
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FIRST_TIMESTAMP: Final = 1_795_000_000_000
WAITING_IN_CHAT: Final = 4
"""Maximum of unanswered messages in a chat before it stops writing."""

QUESTION: Final = re.compile(r"(q\d+): (.*)")
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


class Traffic:
    """Writes to the bot in seven chats: again as soon as an answer comes.

    Args:
        signal: where they write.
        random: what they write.
        happened: told about each step of the traffic: a send, a request to the model.
    """

    def __init__(self, signal: SignalSide, random: Random, happened: Happened) -> None:
        self.said: list[Question] = []
        self.goes_on = True
        self._signal = signal
        self._random = random
        self._happened = happened
        self._last_parts: set[str] = set()
        self._may_join: set[ChatId] = set()
        self._writers = {ChatId.direct(person.aci): ((person,), None) for person in PEOPLE} | {
            ChatId.group(GROUP): (PEOPLE[:3], GROUP)
        }
        signal.on_send = self._on_send

    async def write_everywhere(self, unanswered: Callable[[Question], bool]) -> None:
        """Write in each chat until it has its share of unanswered messages."""
        open_questions = [question.chat for question in self.said if unanswered(question)]
        for chat in self._writers:
            for _ in range(WAITING_IN_CHAT - open_questions.count(chat)):
                await self.write(chat)

    async def last_words(self) -> None:
        """Write once more in each chat for the last time."""
        self.goes_on = False
        for chat in self._writers:
            await self.write(chat, "good night")

    async def write(self, chat: ChatId, words: str | None = None) -> None:
        """Write one message in a chat."""
        if words is not None and chat in self._may_join:
            await self.write(chat)
        number = len(self.said)
        name = f"q{number}"
        said, answer = self._words(name, chat) if words is None else _plain(name, words)
        if not said.startswith("!"):
            self._may_join.add(chat)
        question = Question(name, chat, FIRST_TIMESTAMP + number, answer)
        # Noted before it is written: the answer may come at once.
        self.said.append(question)
        self._last_parts.add(answer[-1])
        people, group = self._writers[chat]
        await self._signal.say(
            said, author=self._random.choice(people), group=group, timestamp=question.timestamp
        )

    async def model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer as a perfect model would; a step for the fake endpoint."""
        self._happened()
        turn = turn_of(request.body["messages"])
        said = "\n".join(words_of(m["content"]) for m in turn if m["role"] == "user")
        questions = dict(QUESTION.findall(said))
        results = [m["content"] for m in turn if m["role"] == "tool"]
        products = [found for found in map(PRODUCT.match, questions.values()) if found is not None]
        if products and not results:
            calls = [("calculate", {"expression": f"{one[1]}*{one[2]}"}) for one in products]
            await tool_calls(*calls)(request, writer)
            return
        *others, (name, words) = questions.items()
        if others:
            answer = f"{' '.join(questions)} heard"  # happens if a command was lost
            self._last_parts.add(answer)
        elif results:
            answer = f"{name} comes to {results[-1]}"
        else:
            answer = _a_lot(name) if words == A_LOT else f"{name} heard"
        await text(answer)(request, writer)

    async def _on_send(self, sent: Sent) -> None:
        self._happened()
        if self.goes_on and sent.text in self._last_parts:
            await self.write(sent.chat)

    def _words(self, name: str, chat: ChatId) -> tuple[str, tuple[str, ...]]:
        # A command keeps two messages from joining, so each has an answer of its own.
        if chat in self._may_join:
            self._may_join.remove(chat)
            return f"!{name}", (UNKNOWN_COMMAND,)
        match self._random.randrange(5):
            case 0 | 1:
                left, right = self._random.randrange(1000), self._random.randrange(1000)
                asked = f"{name}: what is {left}*{right}?"
                return asked, (f"{name} comes to {left * right}",)
            case 2:
                return f"{name}: {A_LOT}", split(_a_lot(name))
            case _:
                return _plain(name, "hello")


def answers(sent: Iterable[Sent]) -> list[Sent]:
    """Leave out signs of progress."""
    return [one for one in sent if not one.text.startswith("🔧")]


def _plain(name: str, words: str) -> tuple[str, tuple[str, ...]]:
    return f"{name}: {words}", (f"{name} heard",)


def _a_lot(name: str) -> str:
    return "\n\n".join(f"{name} paragraph {number}: {'word ' * 200}." for number in range(3))


def turn_of(messages: Sequence[Body]) -> Sequence[Body]:
    """Return the messages since the last answer, which calls no tool."""
    first = len(messages)
    while first and not _is_answer(messages[first - 1]):
        first -= 1
    return messages[first:]


def _is_answer(message: Body) -> bool:
    is_answer = message["role"] == "assistant" and not message.get("tool_calls")
    return is_answer and message["content"] != HEARD
