"""In any order of events, no word of a reminder survives its source message."""

from collections.abc import Sequence

import pytest

from conversation_store.models import (
    AcceptedMessage,
    FurtherDate,
    NewReminder,
    StoredReminder,
)
from tests.unit.lives import HOUR_MS, RETENTION_MS, Life, live, lives
from tests.unit.stores import ADA, accept, call, deletion_of, edit_of, finish, mark, received

STEPS = 40
LATER = FurtherDate("2070-01-01T09:00:00", "FREQ=DAILY", 3_155_788_800_000)


class ReminderLife(Life):
    """A chat whose reminders are used at random; a word belongs to the message that set it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sources: dict[int, str] = {}
        self.set_at: dict[int, int] = {}
        self.taken_back: set[str] = set()

    async def ask(self, text: str) -> AcceptedMessage:
        return await accept(self.store, received(self.number(), text, received_at=self.now))

    async def answer(self, accepted: AcceptedMessage, results: str, answer: str = "Yes.") -> None:
        """End a turn that has called a tool, and send its answer or leave that for later."""
        turn = await self.store.turns.resume(accepted)
        assert turn is not None
        if results:
            await call(self.store, turn, results)
        parts = await finish(self.store, turn, [answer])
        if self.dice.random() < 0.7:
            await mark(self.store, parts, 10_000 + self.number())

    async def add(self, accepted: AcceptedMessage, text: str, *, is_question: bool) -> None:
        new = NewReminder(is_question, text, None, None, self.now + HOUR_MS)
        call = f"call_{self.number()}"
        await self.store.reminders.add("ada", ADA, new, turn=accepted.id, call=call, at_most=100)

    async def set_one(self) -> None:
        word = f"zq{self.number()}x"
        accepted = await self.ask(f"remind me of {word}")
        self.sources[accepted.message.timestamp] = word
        self.set_at[accepted.message.timestamp] = self.now
        self.store.turns.begin([accepted], accepted.message.text)
        await self.add(accepted, f"{word} {word}a", is_question=self.dice.random() < 0.5)
        await self.answer(accepted, f"set: {word}")

    async def listed(self, accepted: AcceptedMessage) -> tuple[StoredReminder, ...]:
        self.store.turns.begin([accepted], accepted.message.text)
        return await self.store.reminders.tell("ada", ADA, turn=accepted.id)

    async def list_all(self) -> None:
        accepted = await self.ask("what is to come?")
        words = " ".join(one.text for one in await self.listed(accepted))
        await self.answer(accepted, f"told: {words}", f"You have: {words}")

    async def move(self) -> None:
        accepted = await self.ask("later, please")
        if told := await self.listed(accepted):
            one = self.dice.choice(told)
            await self.store.reminders.cancel(
                "ada", ADA, one.number, turn=accepted.id, call=f"call_{self.number()}"
            )
            await self.add(accepted, one.text, is_question=one.is_question)
        await self.answer(accepted, " ".join(one.text for one in told))

    async def cancel(self) -> None:
        if waiting := await self.store.reminders.of("ada", ADA):
            await self.store.reminders.cancel("ada", ADA, self.dice.choice(waiting).number)

    async def ring(self) -> None:
        for one in await self.store.reminders.of("ada", ADA):
            further = LATER if self.dice.random() < 0.5 else None
            if one.is_delivered or self.dice.random() < 0.5:
                continue
            if not one.is_question:
                said = await self.store.reminders.deliver(one, f"⏰ {one.text}", further, self.now)
                if said is not None and self.dice.random() < 0.5:
                    await mark(self.store, [said], 10_000 + self.number())
                continue
            run = await self.store.reminders.ask(one, further, self.now)
            if run is not None and self.dice.random() < 0.8:  # else it waits behind others
                self.store.turns.begin([run], one.text, notices=[one.text])
                await self.answer(run, f"about {one.text}", f"⏰ {one.text}")

    async def take_back(self) -> None:
        known = [at for at in self.sources if self.set_at[at] > self.now - RETENTION_MS]
        if not known:
            return  # messages older than the store's records cannot be deleted
        source = self.dice.choice(known)
        if self.dice.random() < 0.5:
            await self.store.changes.forget(
                await accept(self.store, deletion_of(source, self.number()))
            )
            self.taken_back.add(self.sources.pop(source))
            return
        said = edit_of(source, self.number(), "never mind", received_at=self.now)
        edit = await accept(self.store, said)
        outcome, _ = await self.store.changes.settle_edit(edit, answered_within_ms=HOUR_MS * 24)
        if outcome == "answered":
            self.taken_back.add(self.sources.pop(source))
        await self.store.changes.stop([edit.id])

    async def clear(self) -> None:
        await self.store.turns.clear(ADA)

    async def wait(self) -> None:
        self.now += self.dice.choice((1, 5, 300)) * HOUR_MS
        await self.store.upkeep.expire()
        await self.store.upkeep.purge()

    def gone(self) -> Sequence[str]:
        return sorted(self.taken_back)

    async def run(self) -> None:
        steps = (
            *(self.set_one, self.set_one, self.list_all, self.move, self.cancel),
            *(self.ring, self.ring, self.take_back, self.take_back, self.clear, self.wait),
        )
        for _ in range(STEPS // 2):
            await self.dice.choice(steps)()


@lives(5)
def test_no_word_of_a_reminder_survives_its_source(seed: int) -> None:
    live(ReminderLife(seed))


@pytest.mark.full
@lives(150)
def test_no_word_of_a_reminder_survives_its_source_in_many_lives(seed: int) -> None:
    live(ReminderLife(seed))
