"""What holds a reminder's words goes with the message that asked for it, whatever its state."""

from pathlib import Path

import pytest

from conversation_store.models import AcceptedMessage, FurtherDate, NewReminder, StoredReminder
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    ADA,
    accept,
    answer,
    call,
    deletion_of,
    finish,
    is_left,
    now_ms,
    received,
    rows,
    store_at,
)

SECRET = "sesquipedalian"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LATER = FurtherDate("2070-01-01T09:00:00", "FREQ=DAILY", 3_155_788_800_000)


async def set_one(
    store: ConversationStore, *, is_question: bool = False, expires_at: int | None = None
) -> StoredReminder:
    """Let a message that is answered set a reminder; its timestamp is 1."""
    asked = await accept(store, received(1, expires_at=expires_at))
    turn = store.turns.begin([asked], "please")
    new = NewReminder(is_question, f"A {SECRET}", None, None, now_ms())
    reminder = await store.reminders.add("ada", ADA, new, turn=asked.id, call="c", at_most=9)
    assert reminder is not None
    await finish(store, turn)
    return reminder


async def take_back(store: ConversationStore) -> tuple[int, ...]:
    return (await store.changes.forget(await accept(store, deletion_of(1, 99))))[0]


async def run_of(store: ConversationStore, question: StoredReminder) -> AcceptedMessage:
    run = await store.reminders.ask(question, LATER, now_ms())
    assert run is not None
    return run


@pytest.mark.parametrize("state", ["waits", "runs", "is answered", "is cleared"])
async def test_a_run_goes_with_its_question(tmp_path: Path, state: str) -> None:
    async with store_at(tmp_path) as store:
        run = await run_of(store, await set_one(store, is_question=True))
        if state != "waits":
            turn = store.turns.begin([run], run.message.text, notices=[run.message.text])
            await call(store, turn, f"about {SECRET}")
            if state != "runs":
                await finish(store, turn, [f"A {SECRET} is a word."])
            if state == "is cleared":
                await store.turns.clear(ADA)
        await take_back(store)
        assert not rows(tmp_path, "SELECT 1 FROM inbox WHERE state = 'waiting'")
        assert not is_left(tmp_path, SECRET)


async def test_a_turn_that_is_stopped_so_is_named_like_those_of_the_message_itself(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        run = await run_of(store, await set_one(store, is_question=True))
        store.turns.begin([run], run.message.text)
        assert run.id in await take_back(store)


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_unsent_message_of_a_reminder_goes_with_it(tmp_path: Path, is_given_up: bool) -> None:
    async with store_at(tmp_path) as store:
        reminder = await set_one(store)
        said = await store.reminders.deliver(reminder, f"⏰ {SECRET}", LATER, now_ms())
        assert said is not None
        if is_given_up:
            await store.outbox.mark_failed(said, give_up=True)
        await take_back(store)
        assert not is_left(tmp_path, SECRET)


async def test_a_turn_that_runs_and_was_told_a_reminder_goes_when_it_ends(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await set_one(store)
        turn = store.turns.begin([await accept(store, received(2))], "list them")
        await store.reminders.tell("ada", ADA, turn=turn.id)
        await call(store, turn, f"1. {SECRET}")
        await take_back(store)
        await finish(store, turn, ["You have one."])
        await store.upkeep.expire()
        assert not is_left(tmp_path, SECRET)


async def test_a_turn_that_was_told_a_cancelled_reminder_goes_with_its_source(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        reminder = await set_one(store)
        turn = store.turns.begin([await accept(store, received(2))], "list them")
        await store.reminders.tell("ada", ADA, turn=turn.id)
        await call(store, turn, f"1. {SECRET}")
        await finish(store, turn)
        await store.reminders.cancel("ada", ADA, reminder.number)
        await take_back(store)
        assert not is_left(tmp_path, SECRET)


async def test_a_turn_that_is_told_a_reminder_with_a_timer_disappears_by_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await set_one(store, expires_at=now_ms() + HOUR_MS)
        turn = store.turns.begin([await accept(store, received(2))], "list them")
        await store.reminders.tell("ada", ADA, turn=turn.id)
        await call(store, turn, "1. …")
        ((expires_at,),) = rows(tmp_path, f"SELECT expires_at FROM turns WHERE id = {turn.id}")
        assert 0 < expires_at - now_ms() <= HOUR_MS


async def test_a_turn_with_a_reminder_s_words_is_no_older_than_the_reminder_may_get(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        reminder = await set_one(store)
        turn = store.turns.begin([await accept(store, received(2))], "list them")
        await store.reminders.tell("ada", ADA, turn=turn.id)
        await call(store, turn, f"1. {SECRET}")
        await finish(store, turn)
        await store.reminders.cancel("ada", ADA, reminder.number)
        await store.upkeep.purge(now_ms() + 31 * DAY_MS)
        assert not rows(tmp_path, "SELECT 1 FROM turns")


async def test_other_turns_stay(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await set_one(store)
        other = await answer(store, received(2))
        await take_back(store)
        assert rows(tmp_path, "SELECT id FROM turns") == [(other.id,)]
