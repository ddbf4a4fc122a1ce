"""People in many chats who write, calculate, change their minds, send files and flood the bot.

Every version of a message has its own word, which the model repeats, so that each answer shows its
question. A chat does one thing after the other, each after the answer to the one before.
"""

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

from PIL import Image

from benchmarks.soak.model import MUCH, SLOWLY, WORDS, WRITES
from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.fakes.signal_side import Sent, SharedFile, SignalSide

PEOPLE: Final = tuple(
    Person(aci=f"0d1e2f30-0000-4000-8000-{n:012}", number=f"+1555030{n:04}", name=f"Person {n}")
    for n in range(48)
)
STRANGERS: Final = tuple(
    Person(aci=f"0d1e2f30-0000-4000-9000-{n:012}", number=f"+1555040{n:04}", name=f"Stranger {n}")
    for n in range(4)
)
GROUPS: Final = tuple(f"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd{n:02}8=" for n in range(12, 20))
PEOPLE_IN_GROUP: Final = 3

PROGRESS: Final = "🔧"
QUESTION: Final = "❓"

MESSAGES_PER_MINUTE: Final = 40
FLOOD: Final = MESSAGES_PER_MINUTE + 15
FLOOD_OVER_SECONDS: Final = 62.0
"""A person's minute, and a little more."""

THINKING_SECONDS: Final = (4.0, 9.0)
"""Between an answer and the next message; faster people may be taken for bots."""

CHANGES_MIND_SECONDS: Final = (0.0, 1.5)
PHONE_SECONDS: Final = (0.02, 0.3)
"""Until a phone confirms a message."""

ANSWER_SECONDS: Final = 300.0
"""Longer than the bot's retries of models and sends; longer waits are reported."""

ASKED_AGAIN_SECONDS: Final = 20.0
"""A thumb that got lost is shown again after this."""

EXPIRES_SECONDS: Final = 5
COMMANDS: Final = ("!help", "!tools", "!models", "!status", "!clear", "!nonsense")
IMAGE_PIXELS: Final = (64, 64)


class Kind(StrEnum):
    """An action of a person, which decides the result."""

    WORDS = "words"
    CALCULATION = "calculation"
    MUCH = "a long answer"
    PIECES = "pieces"
    EDITED = "edited"
    DELETED = "deleted"
    DISAPPEARING = "disappearing"
    COMMAND = "command"
    STOPPED = "stopped"
    WRITING = "approval"
    TEXT_FILE = "text file"
    IMAGE = "image"
    WEB_PAGE = "web page"
    FLOOD = "flood"
    OVERHEARD = "said to others"
    STRANGER = "stranger"


PLAIN: Final = frozenset(
    {Kind.WORDS, Kind.CALCULATION, Kind.MUCH, Kind.PIECES, Kind.WRITING, Kind.TEXT_FILE}
    | {Kind.IMAGE, Kind.WEB_PAGE}
)
"""Plain messages, whose answer comes and stays."""

USUAL: Final = (
    *(Kind.WORDS,) * 8,
    *(Kind.CALCULATION,) * 4,
    *(Kind.PIECES,) * 4,
    *(Kind.EDITED, Kind.DELETED, Kind.MUCH) * 2,
    *(Kind.COMMAND, Kind.STOPPED, Kind.WRITING, Kind.TEXT_FILE, Kind.IMAGE) * 2,
    Kind.DISAPPEARING,
    Kind.WEB_PAGE,
)


@dataclass(slots=True)
class Said:
    """A written message.

    Attributes:
        name: unique; its words are made of it.
        kind: the action that it belongs to.
        chat: its chat.
        at: monotonic seconds.
        timestamp: Signal's, ms; 0 while it is being written.
        edits: timestamps of its edits.
        lost: it was on its way to a bot that was killed, and never stored.
    """

    name: str
    kind: Kind
    chat: ChatId
    at: float
    timestamp: int = 0
    edits: list[int] = field(default_factory=list)
    lost: bool = False

    def word(self, version: int = 0) -> str:
        """Return the word that it has in a version."""
        return f"{self.name}v{version:02}"


class Chat:
    """A chat with its people, and the messages of the bot.

    Args:
        chat_id: of the chat.
        people: the people there; in a private chat one person.
    """

    def __init__(self, chat_id: ChatId, people: tuple[Person, ...]) -> None:
        self.id = chat_id
        self.people = people
        self.heard: list[tuple[float, Sent]] = []
        self.busy = False
        self.changed = asyncio.Event()

    @property
    def group(self) -> str | None:
        """The group's id; None in a private chat."""
        return self.id.value if self.id.is_group else None

    def hear(self, sent: Sent) -> None:
        """Take what the bot wrote."""
        self.heard.append((time.monotonic(), sent))
        self.wake()

    def wake(self) -> None:
        """Wake the waiting people."""
        self.changed.set()
        self.changed = asyncio.Event()

    def answered(self, said: Said) -> bool:
        """Return whether a message has an answer: with its word, or with no message's word."""
        return any(
            said.name in sent.text or WORDS.search(sent.text) is None
            for at, sent in reversed(self.heard)
            if at >= said.at and not sent.text.startswith((PROGRESS, QUESTION))
        )

    def question(self, said: Said) -> Sent | None:
        """Return the bot's last question since a message."""
        questions = (
            sent for at, sent in reversed(self.heard)
            if at >= said.at and sent.text.startswith(QUESTION)
        )  # fmt: skip
        return next(questions, None)

    async def until(self, happened: Callable[[], bool], seconds: float) -> bool:
        """Wait until something is true here; False when the time is over before."""
        try:
            async with asyncio.timeout(seconds):
                while not happened():
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True


class Crowd:
    """All people with their messages.

    Args:
        signal: where they write.
        random: their actions with the times.
    """

    def __init__(self, signal: SignalSide, random: Random) -> None:
        self.said: list[Said] = []
        self.waits: list[tuple[float, float]] = []
        self.late: list[Said] = []
        self.may_write = asyncio.Event()
        self.may_write.set()
        self._over = asyncio.Event()
        self._voices = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._signal = signal
        self._random = random
        private = [Chat(ChatId.direct(one.aci), (one,)) for one in PEOPLE]
        groups = [
            Chat(ChatId.group(group), PEOPLE[n * PEOPLE_IN_GROUP :][:PEOPLE_IN_GROUP])
            for n, group in enumerate(GROUPS)
        ]
        self.chats = {chat.id: chat for chat in (*private, *groups)}
        self._flooder = private[-1]
        self._confirming: asyncio.Queue[Sent] = asyncio.Queue()
        signal.on_send = self._on_send
        self._deeds: dict[Kind, Callable[[Chat, Kind], Awaitable[None]]] = {
            Kind.PIECES: self._write_in_pieces,
            Kind.EDITED: self._edit,
            Kind.DELETED: self._delete,
            Kind.COMMAND: self._command,
            Kind.STOPPED: self._stop,
            Kind.WRITING: self._allow_or_not,
            Kind.FLOOD: self._flood,
        }

    async def live(self) -> None:
        """Write until told to stop, and until everything is answered that was written."""
        async with asyncio.TaskGroup() as tasks:
            confirming = tasks.create_task(self._confirm())
            tasks.create_task(self._strangers())
            async with asyncio.TaskGroup() as chats:
                for chat in self.chats.values():
                    chats.create_task(self._live_in(chat))
            confirming.cancel()

    def stop(self) -> None:
        """Begin nothing new, and end pauses for thought."""
        self._over.set()

    @property
    def waiting(self) -> int:
        """The number of chats with a person who waits for the bot."""
        return sum(chat.busy for chat in self.chats.values())

    async def have_spoken(self) -> None:
        """Wait until Signal has received all begun messages."""
        await self._quiet.wait()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        self._voices += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._voices -= 1
            if not self._voices:
                self._quiet.set()

    def lose(self, timestamps: Collection[int]) -> None:
        """Give up the messages that no store has, so that no person waits for them."""
        for said in self.said:
            said.lost = said.lost or said.timestamp in timestamps
        for chat in self.chats.values():
            chat.wake()

    async def _live_in(self, chat: Chat) -> None:
        await self._think(*THINKING_SECONDS)
        while not self._over.is_set():
            if not self.may_write.is_set():
                await self.may_write.wait()
                await self._think(0.0, THINKING_SECONDS[0])  # not all at the same moment
            kind = self._random.choice(USUAL)
            if chat is self._flooder:
                kind = Kind.FLOOD
            chat.busy = True
            await self._deeds.get(kind, self._write_once)(chat, kind)
            chat.busy = False
            await self._think(*THINKING_SECONDS)

    async def _think(self, least: float, most: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._random.uniform(least, most)):
                await self._over.wait()

    async def _on_send(self, sent: Sent) -> None:
        if sent.chat in self.chats:
            self.chats[sent.chat].hear(sent)
        self._confirming.put_nowait(sent)

    async def _confirm(self) -> None:
        """Act as the phones, which confirm their messages."""
        while True:
            arrived = [await self._confirming.get()]
            await asyncio.sleep(self._random.uniform(*PHONE_SECONDS))
            while not self._confirming.empty():
                arrived.append(self._confirming.get_nowait())
            for sent in arrived:
                if (chat := self.chats.get(sent.chat)) is not None:
                    await self._signal.deliver_receipt(sent.timestamp, chat.people[0])

    async def _strangers(self) -> None:
        """Act as strangers who try to talk to the bot."""
        while not self._over.is_set():
            await self._think(*THINKING_SECONDS)
            await self.may_write.wait()
            stranger = self._random.choice(STRANGERS)
            chat = Chat(ChatId.direct(stranger.aci), (stranger,))
            await self._say(chat, Kind.STRANGER, "hello")

    # What people do

    async def _say(self, chat: Chat, kind: Kind, words: str) -> Said:
        # The model may read overheard messages more than once.
        initial = "o" if kind is Kind.OVERHEARD else "q"
        said = Said(f"{initial}{len(self.said):05}", kind, chat.id, time.monotonic())
        self.said.append(said)
        addressed = chat.group is not None and kind is not Kind.OVERHEARD
        with self._speaking():
            said.timestamp = await self._signal.say(
                words if kind is Kind.COMMAND else f"{said.word()} {words}",
                author=self._random.choice(chat.people),
                group=chat.group,
                mention=addressed,
                files=self._files(said),
                expires_seconds=EXPIRES_SECONDS if kind is Kind.DISAPPEARING else 0,
            )
        return said

    async def _write_once(self, chat: Chat, kind: Kind) -> None:
        if chat.group is not None:
            await self._say(chat, Kind.OVERHEARD, "lunch?")
        a, b = self._random.randrange(1000), self._random.randrange(1000)
        words = {
            Kind.CALCULATION: f"what is {a}*{b}?",
            Kind.MUCH: MUCH,
            Kind.WEB_PAGE: "what does http://127.0.0.1:9/ say?",
        }
        await self._answer(chat, await self._say(chat, kind, words.get(kind, "hello")))

    async def _write_in_pieces(self, chat: Chat, kind: Kind) -> None:
        pieces = [await self._say(chat, kind, "and") for _ in range(self._random.choice((2, 3)))]
        await self._answer(chat, *pieces)

    async def _edit(self, chat: Chat, kind: Kind) -> None:
        said = await self._say_alone(chat, kind)
        await self._think(*CHANGES_MIND_SECONDS)
        said.edits.append(
            await self._signal.edit(
                f"{said.word(1)} rather this",
                said.timestamp,
                author=chat.people[0],
                group=chat.group,
                mention=chat.group is not None,
            )
        )
        await self._answer(chat, said)

    async def _delete(self, chat: Chat, kind: Kind) -> None:
        said = await self._say_alone(chat, kind)
        await self._think(*CHANGES_MIND_SECONDS)
        await self._signal.delete(said.timestamp, author=chat.people[0], group=chat.group)

    async def _command(self, chat: Chat, kind: Kind) -> None:
        await self._answer(chat, await self._say(chat, kind, self._random.choice(COMMANDS)))

    async def _stop(self, chat: Chat, kind: Kind) -> None:
        await self._say(chat, kind, SLOWLY)
        await self._think(*CHANGES_MIND_SECONDS)
        await self._answer(chat, await self._say(chat, Kind.COMMAND, "!stop"))

    async def _allow_or_not(self, chat: Chat, kind: Kind) -> None:
        """Ask for a note and answer yes or no, repeatedly if the bot seems not to hear."""
        said = await self._say_alone(chat, kind, WRITES)
        emoji = self._random.choice("👍👎")
        tries = int(ANSWER_SECONDS / ASKED_AGAIN_SECONDS)
        for _ in range(tries):
            asked = chat.question(said)
            if asked is not None:
                await self._signal.react(
                    emoji, asked.timestamp, author=chat.people[0], group=chat.group
                )
            if await self._heard_of(chat, said, asked):
                break
        await self._answer(chat, said)

    async def _heard_of(self, chat: Chat, said: Said, asked: Sent | None) -> bool:
        """Wait for an answer or another question; return whether it was the answer."""
        await chat.until(
            lambda: self._settled(chat, said) or chat.question(said) != asked, ASKED_AGAIN_SECONDS
        )
        return self._settled(chat, said)

    async def _flood(self, chat: Chat, kind: Kind) -> None:
        for _ in range(FLOOD):
            await self._say(chat, kind, "now!")
        chat.busy = False
        await self._think(FLOOD_OVER_SECONDS, FLOOD_OVER_SECONDS)

    async def _say_alone(self, chat: Chat, kind: Kind, words: str = "hello") -> Said:
        """Write as the first person of the chat, who alone may change the message and is asked."""
        return await self._say(Chat(chat.id, chat.people[:1]), kind, words)

    async def _answer(self, chat: Chat, *messages: Said) -> None:
        """Wait until all are answered, and note how long it took."""
        began = time.monotonic()
        done = await chat.until(
            lambda: all(self._settled(chat, said) for said in messages), ANSWER_SECONDS
        )
        self.waits.append((began, time.monotonic() - began))
        if not done:
            self.late += [said for said in messages if not self._settled(chat, said)]

    def _settled(self, chat: Chat, said: Said) -> bool:
        return said.lost or chat.answered(said)

    def _files(self, said: Said) -> list[SharedFile]:
        if said.kind is Kind.TEXT_FILE:
            return [SharedFile("text/plain", f"{said.word()} notes".encode(), "notes.txt")]
        if said.kind is Kind.IMAGE:
            colour = tuple(self._random.randrange(256) for _ in range(3))
            picture = io.BytesIO()
            Image.new("RGB", IMAGE_PIXELS, colour).save(picture, "PNG")
            return [SharedFile("image/png", picture.getvalue(), "picture.png")]
        return []
