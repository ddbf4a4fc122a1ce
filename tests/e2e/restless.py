"""People who write in pieces, change what they wrote and take it back, at any moment.

Every version of a message has words of its own, so that an answer tells what it is about, and a
store what it still knows.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bot.llm.dialects.openai.requests import HEARD
from bot.messaging.events import Person
from conversation_store.models import ChatId
from tests.e2e.traffic import GROUP, PEOPLE
from tests.fakes.openai_server import Request, text, tool_calls, words_of
from tests.fakes.signal_side import Sent, SharedFile, SignalSide

WORDS: Final = re.compile(r"\b[qo]\d{5}v\d\d\b")
QUESTIONS: Final = re.compile(r"\bq\d{5}v\d\d\b")
PRODUCT: Final = re.compile(r"(\d+)\*(\d+)")
LATEST: Final = 4
"""What people change is one of so many messages that they wrote last in a chat."""

EXPIRES_SECONDS: Final = 1
MAX_VERSIONS: Final = 99


@dataclass(slots=True)
class Said:
    """A message, as it reads after each of its edits.

    Attributes:
        name: unique; its words begin with it.
        chat: where it was written.
        author: who wrote it, and alone changes it.
        addressed: it is for the bot; others are said to people in the group.
        disappears: it has a timer.
        timestamp: of the message.
        edits: timestamps of its edits.
        deletion: timestamp of the deletion.
    """

    name: str
    chat: ChatId
    author: Person
    addressed: bool = True
    disappears: bool = False
    timestamp: int = 0
    edits: list[int] = field(default_factory=list)
    deletion: int | None = None

    def words(self, version: int) -> str:
        """What it reads in a version; 0 is how it was written first."""
        return f"{self.name}v{version:02}"

    @property
    def all_words(self) -> list[str]:
        """What it ever read."""
        return [self.words(version) for version in range(len(self.edits) + 1)]


class Restless:
    """Writes to the bot and changes what was written, again as soon as an answer comes.

    Args:
        signal: where they write.
        random: what they do.
        happened: told about each step: a send, a request to the model.
    """

    def __init__(self, signal: SignalSide, random: Random, happened: Callable[[], None]) -> None:
        self.said: dict[str, Said] = {}
        self.asked: list[frozenset[str]] = []
        self.goes_on = True
        self._signal = signal
        self._random = random
        self._happened = happened
        self._latest: dict[ChatId, list[Said]] = {}
        self._writers = {ChatId.direct(person.aci): ((person,), None) for person in PEOPLE[:4]} | {
            ChatId.group(GROUP): (PEOPLE[:3], GROUP)
        }
        signal.on_send = self._on_send

    async def write_everywhere(self) -> None:
        """Write something in every chat."""
        for chat in self._writers:
            await self._write_in_pieces(chat)

    async def last_words(self) -> frozenset[str]:
        """Write once more in each chat, and return the words; then nobody writes any more."""
        self.goes_on = False
        last = [await self._write(chat) for chat in self._writers]
        return frozenset(said.words(0) for said in last)

    async def model(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer with the words of the question, and what its products come to."""
        self._happened()
        turn = _turn_of(request.body["messages"])
        content = "\n".join(words_of(m["content"]) for m in turn if m["role"] == "user")
        results = [m["content"] for m in turn if m["role"] == "tool"]
        words = QUESTIONS.findall(content)
        if not results:
            self.asked.append(frozenset(words))
        if words and self.goes_on and self._random.random() < 0.25:
            await self._change(self.said[self._random.choice(words)[:6]])
        products = PRODUCT.findall(content)
        if products and not results:
            calls = [("calculate", {"expression": f"{a}*{b}"}) for a, b in products]
            await tool_calls(*calls)(request, writer)
        else:
            await text(" ".join([*dict.fromkeys(words), "it", "is", *results]))(request, writer)

    async def _on_send(self, sent: Sent) -> None:
        self._happened()
        # Not before the bot has caught up: of more than may wait, some is not answered but refused.
        is_new = any(said.name in sent.text for said in self._latest[sent.chat])
        if self.goes_on and is_new and not sent.text.startswith("🔧"):
            if self._random.random() < 0.6:
                await self._change(self._random.choice(self._latest[sent.chat]))
            await self._write_in_pieces(sent.chat)

    async def _write_in_pieces(self, chat: ChatId) -> None:
        if chat.is_group and self._random.random() < 0.5:
            await self._write(chat, addressed=False)
        for _ in range(self._random.choice((1, 1, 2, 3))):
            await self._write(chat)

    async def _write(self, chat: ChatId, *, addressed: bool = True) -> Said:
        people, group = self._writers[chat]
        kind = self._random.randrange(8) if addressed and self.goes_on else None
        name = f"{'q' if addressed else 'o'}{len(self.said):05}"
        said = Said(name, chat, self._random.choice(people), addressed, disappears=kind == 0)
        # Noted before it is written: the answer may come at once.
        self.said[name] = said
        self._latest[chat] = [*self._latest.get(chat, ())[1 - LATEST :], said]
        words = said.words(0)
        files = [SharedFile("text/plain", words.encode(), "notes.txt")] if kind == 1 else []
        product = f" {self._random.randrange(99)}*{self._random.randrange(99)}"
        said.timestamp = await self._signal.say(
            f"look at this: {name}" if files else words + (product if kind == 2 else ""),
            author=said.author,
            group=group,
            mention=addressed and group is not None,
            files=files,
            expires_seconds=EXPIRES_SECONDS if said.disappears else 0,
        )
        return said

    async def _change(self, said: Said) -> None:
        """Edit what somebody has written, or take it back."""
        if said.deletion is not None or not said.timestamp or len(said.edits) >= MAX_VERSIONS:
            return
        _, group = self._writers[said.chat]
        if self._random.random() < 0.4:
            said.deletion = 0
            said.deletion = await self._signal.delete(
                said.timestamp, author=said.author, group=group
            )
            await self._write(said.chat)  # it may have been all that the chat was to answer
            return
        said.edits.append(0)
        version = len(said.edits)
        said.edits[version - 1] = await self._signal.edit(
            said.words(version),
            said.timestamp,
            author=said.author,
            group=group,
            mention=said.addressed and group is not None,
            expires_seconds=EXPIRES_SECONDS if said.disappears else 0,
        )


def _turn_of(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return what was said since the last answer, which calls no tool."""
    first = len(messages)
    while first and not _is_answer(messages[first - 1]):
        first -= 1
    return messages[first:]


def _is_answer(message: Mapping[str, Any]) -> bool:
    is_answer = message["role"] == "assistant" and not message.get("tool_calls")
    return is_answer and message["content"] != HEARD
