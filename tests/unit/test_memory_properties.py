"""In any order of events, facts stay with their owner and are deleted with their source."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from bot.chat.own_tools import memory_of
from bot.chat.prompt import notes_of
from conversation_store.models import (
    AcceptedMessage,
    AuditEntry,
    ChatId,
    Message,
    Role,
    ToolCall,
)
from tests.unit.lives import HOUR_MS, RETENTION_MS, Life, live, lives
from tests.unit.stores import accept, deletion_of, edit_of, finish, mark, received
from tools.base import Caller, ToolError
from tools.memory import memory_tools

CHATS = [
    *(ChatId.direct(person) for person in ("ada", "ben", "eve")),
    *(ChatId.group(group) for group in ("team", "club")),
]
STEPS = 40


@dataclass
class Fact:
    """Record of a fact, kept by the test.

    Attributes:
        word: a word that no other fact contains.
        chat: its owner.
        messages: timestamps of its sources: the message that says its word first, then those of
            the facts that its turn was told.
        said_at: when the first message came.
        expires_at: when the first of them disappears.
        word_expires_at: when the message with its word disappears.
        struck: a person deleted it by its number.
        gone: deleted with one of its messages.
    """

    word: str
    chat: ChatId
    messages: list[int]
    said_at: int
    expires_at: int | None = None
    word_expires_at: int | None = None
    struck: bool = False
    gone: bool = False


def earliest(*times: int | None) -> int | None:
    return min((at for at in times if at is not None), default=None)


class MemoryLife(Life):
    """Random use of a store by some chats, with invariants."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.facts: list[Fact] = []
        self.off: set[ChatId] = set()
        self.taken_back: set[int] = set()
        self.written_at: dict[int, int] = {}

    def living(self, chat: ChatId | None = None) -> list[Fact]:
        return [
            fact
            for fact in self.facts
            if not fact.gone
            and not fact.struck
            and (fact.expires_at is None or fact.expires_at > self.now)
            and chat in {None, fact.chat}
        ]

    async def question(self, chat: ChatId, text: str) -> AcceptedMessage:
        expires_at = self.now + 50 * HOUR_MS if self.dice.random() < 0.3 else None
        author = chat.value if not chat.is_group else "ada"
        message = received(
            self.number(), text, chat, author=author, received_at=self.now, expires_at=expires_at
        )
        self.written_at[message.timestamp] = self.now
        return await accept(self.store, message)

    async def call(self, accepted: AcceptedMessage, name: str, arguments: str) -> str:
        """Call a tool in a turn as the bot does: store the call, run it, store its result."""
        chat, call = accepted.message.chat, ToolCall(f"call_{self.number()}", name, arguments)
        await self.store.turns.record_calls(accepted.id, Message(Role.ASSISTANT, None, (call,)))
        tools = memory_tools(partial(memory_of, self.store.memory))
        tool = next(tool for tool in tools if tool.name == name)
        caller = Caller(accepted.message.author, chat, turn=accepted.id, call=call.id)
        try:
            result = str(await tool.run(tool.parse(arguments), caller))
            if self.dice.random() < 0.2:  # killed before the result was stored
                result = str(await tool.run(tool.parse(arguments), caller))
        except ToolError as error:
            result = str(error)
        entry = AuditEntry(self.now, chat, "x", accepted.id, name, "00", "ok", 1)
        await self.store.turns.record_result(call.id, result, entry)
        self.holds_only_own(chat, result)
        return result

    async def answer(self, accepted: AcceptedMessage, words: str) -> None:
        turn = await self.store.turns.resume(accepted)
        assert turn is not None
        await mark(self.store, await finish(self.store, turn, [words]), 10_000 + self.number())

    def holds_only_own(self, chat: ChatId, text: str) -> None:
        own = {fact.word for fact in self.living(chat)}
        shown = {fact.word for fact in self.facts if fact.word in text}
        assert shown <= own, "A fact of somebody else, or one that is gone"
        assert not (shown and chat in self.off and "Memory is off" not in text)

    async def remember(self) -> None:
        chat = self.dice.choice(CHATS)
        word = f"zq{self.number()}x"
        text = f"{word} {word}a likes tea" + f" and {word}b" * self.dice.choice((0, 0, 30))
        fact = Fact(word, chat, [], self.now)
        accepted = await self.question(chat, f"remember: {text}")
        self.store.turns.begin([accepted], accepted.message.text)
        self.note(fact, accepted)
        if self.dice.random() < 0.3:
            found = await self.call(accepted, "recall", '{"query": "tea"}')
            for other in self.facts:
                if other.word in found:
                    fact.messages += other.messages
                    fact.expires_at = earliest(fact.expires_at, other.expires_at)
        result = await self.call(accepted, "remember", f'{{"text": "{text}"}}')
        if self.dice.random() < 0.1:
            await self.store.changes.stop([accepted.id])
            fact.gone = True
        else:
            await self.answer(accepted, "I will.")
        if result.startswith("Remembered"):
            self.facts.append(fact)
        else:
            assert chat in self.off

    def note(self, fact: Fact, accepted: AcceptedMessage) -> None:
        fact.messages.append(accepted.message.timestamp)
        fact.expires_at = fact.word_expires_at = accepted.message.expires_at

    async def recall(self) -> None:
        chat = self.dice.choice(CHATS)
        words = [fact.word[:-1] for fact in self.facts] or ["x"]  # to be found in it, and no trace
        query = self.dice.choice(("tea", "", "likes", self.dice.choice(words)))
        accepted = await self.question(chat, "what do you know?")
        self.store.turns.begin([accepted], accepted.message.text)
        limit = self.dice.randint(1, 50)
        found = await self.call(accepted, "recall", f'{{"query": "{query}", "limit": {limit}}}')
        await self.answer(accepted, f"I know: {found}")

    async def look(self) -> None:
        """Hold what a request of each chat would show against what it may, and has to."""
        for chat in CHATS:
            text = (await notes_of(self.store, chat, uses_memory=True)).text
            self.holds_only_own(chat, text)
            listed = {fact.text.split()[0] for fact in await self.store.memory.of_chat(chat)}
            assert listed == {fact.word for fact in self.living(chat)}
            assert ("## Remembered" in text) == (bool(listed) and chat not in self.off)

    async def strike(self) -> None:
        chat = self.dice.choice(CHATS)
        facts = await self.store.memory.of_chat(chat)
        if facts:
            chosen = self.dice.choice(facts)
            await self.store.memory.forget(chat, chosen.number)
            for fact in self.facts:
                fact.struck = fact.struck or fact.word in chosen.text

    def is_recent(self, message: int) -> bool:
        """Return whether its author can still take back a message."""
        return self.written_at[message] > self.now - RETENTION_MS

    async def delete(self) -> None:
        targets = [(one, at) for one in self.facts for at in one.messages if self.is_recent(at)]
        if targets:
            fact, target = self.dice.choice(targets)
            author = fact.chat.value if not fact.chat.is_group else "ada"
            deletion = deletion_of(target, self.number(), fact.chat, author=author)
            await self.store.changes.forget(await accept(self.store, deletion))
            self.go(target)

    async def edit(self) -> None:
        targets = [(one, at) for one in self.facts for at in one.messages if self.is_recent(at)]
        targets = [(one, at) for one, at in targets if at not in self.taken_back]
        if targets:
            fact, target = self.dice.choice(targets)
            author = fact.chat.value if not fact.chat.is_group else "ada"
            said = edit_of(
                target, self.number(), "never mind", fact.chat, author=author, received_at=self.now
            )
            edit = await accept(self.store, said)
            outcome, _ = await self.store.changes.settle_edit(edit, answered_within_ms=HOUR_MS)
            if outcome == "answered":
                self.go(target)
            await self.store.changes.stop([edit.id])

    async def clear(self) -> None:
        await self.store.turns.clear(self.dice.choice(CHATS))

    async def switch(self) -> None:
        chat = self.dice.choice(CHATS)
        await self.store.memory.switch(chat, on=chat in self.off)
        self.off ^= {chat}

    async def wait(self) -> None:
        self.now += self.dice.choice((1, 10, 60, 300)) * HOUR_MS
        if self.dice.random() < 0.5:
            await self.tidy_up()

    async def tidy_up(self) -> None:
        """Delete everything that has expired."""
        await self.store.upkeep.expire()
        await self.store.upkeep.purge()
        for fact in self.facts:
            is_over = fact.expires_at is not None and fact.expires_at <= self.now
            fact.gone |= is_over or fact.said_at < self.now - RETENTION_MS

    def go(self, message: int) -> None:
        self.taken_back.add(message)
        for fact in self.facts:
            fact.gone |= message in fact.messages

    def gone(self) -> Sequence[str]:
        """Return the words of facts that are gone, where the message that says them is as well."""
        return [
            fact.word
            for fact in self.facts
            if fact.gone
            and (
                fact.messages[0] in self.taken_back
                or fact.said_at < self.now - RETENTION_MS
                or (fact.word_expires_at is not None and fact.word_expires_at <= self.now)
            )
        ]

    async def run(self) -> None:
        steps = (
            *(self.remember, self.remember, self.remember, self.recall, self.recall),
            *(self.strike, self.delete, self.edit, self.clear, self.switch, self.wait),
        )
        for _ in range(STEPS // 2):
            await self.dice.choice(steps)()
            await self.look()
        await self.tidy_up()
        await self.look()


@lives(6)
def test_facts_stay_with_their_owner_and_go_with_their_source(seed: int) -> None:
    live(MemoryLife(seed))


@pytest.mark.full
@lives(150)
def test_facts_stay_with_their_owner_and_go_with_their_source_in_many_lives(seed: int) -> None:
    live(MemoryLife(seed))
