"""No byte of a deleted message is left, even after a long chain of derived data."""

from collections.abc import Iterable, Sequence

import pytest

from conversation_store.models import (
    AcceptedMessage,
    AuditEntry,
    Fact,
    FurtherDate,
    Message,
    NewReminder,
    QuestionTerms,
    ReceivedQuote,
    Role,
    StoredTurn,
    ToolCall,
)
from conversation_store.outbox import FileToMake
from conversation_store.outgoing import Outgoing
from conversation_store.turns import Told
from tests.unit.lives import HOUR_MS, Life, live, lives
from tests.unit.stores import GROUP, accept, deletion_of, edit_of, finish, mark, received

AUTHORS = ("ada", "ben")
STEPS = 30


class GroupLife(Life):
    """A group whose store is written at random.

    A turn is given texts that contain the words of everything that it has read. So a word that is
    left after the deletion of its message shows a gap in the chain.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.words: dict[tuple[str, int], set[str]] = {}
        self.sent: list[tuple[int, str]] = []
        self.deleted: set[str] = set()
        self.files = 0

    def word(self, author: str, timestamp: int) -> str:
        word = f"zq{self.number()}x"
        self.words.setdefault((author, timestamp), set()).add(word)
        return word

    def quote(self) -> ReceivedQuote | None:
        if self.words and self.dice.random() < 0.3:
            (author, at), words = self.dice.choice(sorted(self.words.items()))
            return ReceivedQuote(at, author, by_bot=False, text=" ".join(sorted(words)))
        sent = [(at, text) for at, text in self.sent if not self.is_gone(text)]
        if sent and self.dice.random() < 0.3:
            at, text = self.dice.choice(sent)
            return ReceivedQuote(at, "bot", by_bot=True, text=text)
        return None

    def is_gone(self, text: str) -> bool:
        """Return whether a text has words of a deleted message."""
        return any(word in self.deleted for word in text.split())

    async def ask(self) -> AcceptedMessage:
        author, timestamp = self.dice.choice(AUTHORS), self.number()
        self.now += 1
        text = f"ask {self.word(author, timestamp)}"
        message = received(
            timestamp, text, GROUP, author=author, received_at=self.now, quote=self.quote()
        )
        return await accept(self.store, message)

    async def chat(self) -> None:
        author, timestamp = self.dice.choice(AUTHORS), self.number()
        self.now += 1
        text = f"chat {self.word(author, timestamp)}"
        await self.store.messages.overhear(
            [received(timestamp, text, GROUP, author=author, received_at=self.now)]
        )

    async def answer(self) -> None:
        asked = await self.ask()
        heard = await self.store.messages.overheard(GROUP)
        quote = asked.message.quote
        read = [asked.message.text, *(one.text for one in heard)]
        read += [quote.text] if quote is not None else []
        turn = self.store.turns.begin([asked], " ".join(read), told=Told(heard))
        for _ in range(self.dice.randint(0, 4)):
            tools = (self.catch_up, self.recall, self.listed, self.question, self.search)
            tool = self.dice.choice(tools)
            read += await tool(asked, turn)
            make = self.dice.choice((self.remember, self.remind, self.keep_file))
            await make(asked, turn, " ".join(read))
            sent = Outgoing(
                "search", "example.com", " ".join(read), is_proven=0, requests=1, bytes=9
            )
            self.store.outgoing.note(turn.id, sent)
            if self.dice.random() < 0.2:
                await self.delete()
        said = " ".join(read)
        # Words to be spoken wait next to the answer, and are made just before it is sent.
        to_make = FileToMake(said) if self.dice.random() < 0.3 else None
        parts = await finish(self.store, turn, [said], to_make=to_make)
        if self.dice.random() < 0.8:
            at = 10_000 + self.number()
            await mark(self.store, parts, at)
            self.sent += [(at, said)] if parts else []

    async def catch_up(self, asked: AcceptedMessage, turn: StoredTurn) -> Iterable[str]:
        missed = await self.store.catch_up.missed(
            GROUP, asked.message.author, turn_id=turn.id, hours=99
        )
        if missed is None:
            return ()
        return [one.text for one in await self.store.catch_up.tell(missed[1], turn.id)]

    async def recall(self, asked: AcceptedMessage, turn: StoredTurn) -> Iterable[str]:
        found = await self.store.memory.recall(GROUP, "", 3, turn_id=turn.id)
        return [fact.text for fact in found if isinstance(fact, Fact)]

    async def search(self, asked: AcceptedMessage, turn: StoredTurn) -> Iterable[str]:
        words = sorted(word for words in self.words.values() for word in words)
        wanted = " ".join(self.dice.sample(words, min(3, len(words))))
        found = await self.store.search.find(GROUP, wanted, 5, reader=turn.id, since=0, until=2**62)
        return [one.text for one in found]

    async def listed(self, asked: AcceptedMessage, turn: StoredTurn) -> Iterable[str]:
        told = await self.store.reminders.tell(asked.message.author, GROUP, turn=turn.id)
        if told and self.dice.random() < 0.3:
            one = self.dice.choice(told)
            await self.store.reminders.cancel(
                asked.message.author, GROUP, one.number, turn=turn.id, call=f"c{self.number()}"
            )
        return [one.text for one in told]

    async def question(self, asked: AcceptedMessage, turn: StoredTurn) -> Iterable[str]:
        call = ToolCall(f"call_{self.number()}", "ask_user", "{}")
        await self.store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (call,)))
        question = await self.store.questions.find_or_open(
            turn.id, call.id, QuestionTerms("choice", asked.message.author)
        )
        if question is None:
            return ()
        reply = await self.ask()
        text = reply.message.text  # the quote is only shown to the person
        await self.store.questions.answer(question.id, text, message=reply)
        entry = AuditEntry(self.now, GROUP, "x", turn.id, "ask_user", "00", "ok", 1)
        await self.store.turns.record_result(call.id, text, entry)
        return (text,)

    async def remember(self, asked: AcceptedMessage, turn: StoredTurn, text: str) -> None:
        call = f"call_{self.number()}"
        await self.store.memory.remember(GROUP, text, turn_id=turn.id, call=call)

    async def remind(self, asked: AcceptedMessage, turn: StoredTurn, text: str) -> None:
        new = NewReminder(self.dice.random() < 0.5, text, None, None, self.now + HOUR_MS)
        await self.store.reminders.add(
            asked.message.author, GROUP, new, turn=turn.id, call=f"c{self.number()}", at_most=99
        )

    async def keep_file(self, asked: AcceptedMessage, turn: StoredTurn, text: str) -> None:
        self.files += await self.store.files.add(asked.message, f"inbox/{self.number()}")

    async def ring(self) -> None:
        for author in AUTHORS:
            for one in await self.store.reminders.of(author, GROUP):
                further = FurtherDate("2030-01-01T00:00:00", "FREQ=DAILY", self.now + HOUR_MS)
                then = further if self.dice.random() < 0.5 else None
                if one.is_delivered:
                    continue
                if not one.is_question:
                    said = await self.store.reminders.deliver(one, one.text, then, self.now)
                    if said is not None and self.dice.random() < 0.5:
                        await mark(self.store, [said], 10_000 + self.number())
                    continue
                run = await self.store.reminders.ask(one, then, self.now)
                if run is not None and self.dice.random() < 0.7:
                    turn = self.store.turns.begin([run], one.text)
                    await finish(self.store, turn, [one.text])

    async def summarise(self) -> None:
        """Summarise in a few words what is due, and delete something before that is stored."""
        due = await self.store.summaries.due(GROUP, most_bytes=300, request_bytes=200)
        if due is None:
            return
        told = [message.content or "" for _, turn in due.turns for message in turn]
        told += [summary.text for summary in due.summaries]
        if self.dice.random() < 0.3:
            await self.delete()
        await self.store.summaries.add(GROUP, due, " ".join(told))

    async def delete(self) -> None:
        if self.words:
            author, target = self.dice.choice(sorted(self.words))
            deletion = deletion_of(target, self.number(), GROUP, author=author)
            await self.store.changes.forget(await accept(self.store, deletion))
            self.deleted |= self.words.pop((author, target))

    async def edit(self) -> None:
        if self.words:
            author, target = self.dice.choice(sorted(self.words))
            text = f"edited {self.word(author, target)}"
            edit = edit_of(target, self.number(), text, GROUP, author=author, received_at=self.now)
            if await self.store.messages.find_target(edit) is None:
                await self.store.changes.edit_overheard(edit)
                return
            accepted = await accept(self.store, edit)
            await self.store.changes.settle_edit(accepted, answered_within_ms=HOUR_MS)
            await self.store.changes.stop([accepted.id])

    async def clear(self) -> None:
        await self.store.turns.clear(GROUP)

    def gone(self) -> Sequence[str]:
        return sorted(self.deleted)

    async def run(self) -> None:
        await self.store.catch_up.switch_on(GROUP)
        steps = (
            *(self.answer, self.answer, self.answer, self.chat, self.chat, self.ring),
            *(self.delete, self.delete, self.edit, self.clear),
            *(self.summarise, self.summarise, self.summarise),
        )
        for _ in range(STEPS // 2):
            await self.dice.choice(steps)()


@lives(8)
def test_deletion_leaves_no_word_of_a_message(seed: int) -> None:
    live(GroupLife(seed))


@pytest.mark.full
@lives(150)
def test_deletion_leaves_no_word_of_a_message_in_many_lives(seed: int) -> None:
    live(GroupLife(seed))
