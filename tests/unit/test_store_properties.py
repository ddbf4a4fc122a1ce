"""In any order of events, forgotten messages are gone and waiting ones are not lost."""

import asyncio
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conversation_store.models import AcceptedMessage, Attachment, Image
from conversation_store.store import ConversationStore
from tests.unit.lives import lives, trace_in_files, trace_in_tables
from tests.unit.stores import (
    GROUP,
    TEN_MINUTES_MS,
    accept,
    call,
    deletion_of,
    edit_of,
    finish,
    mark,
    received,
    store_at,
)

FAR = 4_000_000_000_000


class Chat:
    """Random use of a group's store, with a record of the words that it may still contain.

    Every text contains the word of its message, so the word marks everything derived from it.
    """

    def __init__(self, store: ConversationStore, seed: int) -> None:
        self.store = store
        self.dice = random.Random(seed)
        self.clock = 0
        self.waiting: dict[int, AcceptedMessage] = {}
        self.words: dict[int, list[str]] = {}
        self.expiring: set[int] = set()
        self.forgotten: list[str] = []

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def word(self, timestamp: int) -> str:
        word = f"<{timestamp}.{self.tick()}>"
        self.words.setdefault(timestamp, []).append(word)
        return word

    async def write(self) -> None:
        timestamp = self.tick()
        expires_at = FAR if self.dice.random() < 0.3 else None
        text = self.word(timestamp) * self.dice.choice((1, 10, 800))
        message = received(timestamp, text, GROUP, expires_at=expires_at)
        if expires_at is not None:
            self.expiring.add(timestamp)
        if self.dice.random() < 0.3:
            await self.store.messages.overhear([message])
        else:
            accepted = await accept(self.store, message)
            self.waiting[accepted.id] = accepted

    async def answer(self) -> None:
        pieces = list(self.waiting.values())[: self.dice.randint(1, 3)]
        if not pieces:
            return
        heard = await self.store.messages.overheard(GROUP)
        said = " ".join([one.text for one in heard] + [one.message.text for one in pieces])
        image = Image("image/png", said.encode())
        turn = self.store.turns.begin(pieces, said, images=[image], notices=[said], overheard=heard)
        await call(self.store, turn, said, files=[Attachment("f", "x/y", said.encode())])
        fate = self.dice.random()
        if fate < 0.2:
            await self.store.turns.restart(turn.id)
        elif fate < 0.4:
            await self.forget()
            parts = await finish(self.store, turn, [said], replaces=pieces[0].replaces)
            await mark(self.store, parts, self.tick())
            if parts:
                for piece in pieces:
                    del self.waiting[piece.id]
        else:
            parts = await finish(self.store, turn, [said, said], replaces=pieces[0].replaces)
            for piece in pieces:
                del self.waiting[piece.id]
            if fate < 0.8:
                await mark(self.store, parts, self.tick())
            elif fate < 0.9:
                await self.store.outbox.mark_failed(parts[0], give_up=True)

    async def edit(self) -> None:
        if not self.words:
            return
        target = self.dice.choice(sorted(self.words))
        expires_at = FAR if target in self.expiring else None
        said = edit_of(target, self.tick(), self.word(target), GROUP, expires_at=expires_at)
        is_question = self.dice.random() < 0.3  # words to others that are now to the bot
        known = await self.store.messages.find_target(said) is not None
        if not (known or is_question) and await self.store.messages.knows_target(said):
            await self.store.changes.edit_overheard(said)
            return
        edit = await accept(self.store, said)
        found = await self.store.messages.find_target(edit.message)
        if found in self.waiting:
            self.waiting[found] = await self.store.changes.merge_edit(edit, self.waiting[found])
            return
        outcome, edit = await self.store.changes.settle_edit(
            edit, answered_within_ms=TEN_MINUTES_MS
        )
        if outcome in {"answered", "unknown"}:
            self.waiting[edit.id] = edit

    async def forget(self) -> None:
        if not self.words:
            return
        target = self.dice.choice(sorted(self.words))
        deletion = await accept(self.store, deletion_of(target, self.tick(), GROUP))
        for closed in (await self.store.changes.forget(deletion))[0]:
            del self.waiting[closed]
        self.forgotten += self.words.pop(target)

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.dice.choice((self.write, self.write, self.answer, self.edit, self.forget))
            await step()


async def unanswered(store: ConversationStore) -> set[int]:
    accepted = await store.messages.unfinished()
    return {one.id for first in accepted for one in (first, *first.joined)}


async def scenario(folder: Path, seed: int) -> None:
    async with store_at(folder) as store:
        chat = Chat(store, seed)
        await chat.run(20)
        assert await unanswered(store) == set(chat.waiting)
    async with store_at(folder) as store:
        chat.store = store
        await chat.run(20)
        assert await unanswered(store) == set(chat.waiting)
        assert trace_in_tables(folder, chat.forgotten) == []
        await mark(store, await store.outbox.unfinished(), 10_000)
        expired = await store.upkeep.expire(FAR)
        assert {one.id for one in expired.waiting} <= set(chat.waiting)
        assert await unanswered(store) == set(chat.waiting)
        gone = [word for at in chat.expiring for word in chat.words.get(at, ())] + chat.forgotten
        assert trace_in_tables(folder, gone) == []
        assert trace_in_files(folder, gone) == []


@pytest.mark.full
@lives(25)
def test_nothing_that_was_forgotten_is_left_and_nothing_that_waits_is_lost(seed: int) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder), seed))
