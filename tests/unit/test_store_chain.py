"""A deletion follows the ids of what was derived from a message, however far that is."""

from pathlib import Path

import pytest

from conversation_store.models import (
    AcceptedMessage,
    AuditEntry,
    Message,
    NewReminder,
    QuestionTerms,
    ReceivedQuote,
    Role,
    StoredTurn,
)
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    ADA,
    CALL,
    GROUP,
    TEN_MINUTES_MS,
    accept,
    answer,
    deletion_of,
    edit_of,
    finish,
    is_left,
    mark,
    now_ms,
    questions,
    received,
    rows,
    store_at,
    waiting,
)

SECRET = "quagga"
HOUR_MS = 3_600_000


async def remember(store: ConversationStore, turn: StoredTurn, text: str = f"A {SECRET}") -> None:
    await store.memory.remember(GROUP, text, turn_id=turn.id, call="remember")


async def remind(store: ConversationStore, turn: StoredTurn, text: str = f"A {SECRET}") -> None:
    new = NewReminder(is_question=False, text=text, local_at=None, repeat=None, due_at=now_ms())
    await store.reminders.add("ada", GROUP, new, turn=turn.id, call="remind", at_most=9)


async def answered_question(
    store: ConversationStore, *, expires_at: int | None = None
) -> tuple[AcceptedMessage, StoredTurn]:
    """Begin a turn that asks, and answer its question by message 2."""
    asked = await accept(store, received(1, "order lunch"))
    turn = store.turns.begin([asked], "order lunch")
    store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
    question = await store.questions.find_or_open(turn.id, CALL.id, QuestionTerms("choice", "ada"))
    assert question is not None
    reply = await accept(store, received(2, SECRET, expires_at=expires_at))
    assert await store.questions.answer(question.id, f"They say: {SECRET}", message=reply)
    entry = AuditEntry(1, ADA, "ada", turn.id, "ask_user", "00", "ok", 3)
    await store.turns.record_result(CALL.id, f"They say: {SECRET}", entry)
    return asked, turn


@pytest.mark.parametrize("has_ended", [False, True])
async def test_deletion_takes_an_answer_to_a_question_back(tmp_path: Path, has_ended: bool) -> None:
    async with store_at(tmp_path) as store:
        asked, turn = await answered_question(store)
        if has_ended:
            await mark(store, await finish(store, turn, [f"Ordered: {SECRET}"]), 10)
        await store.changes.forget(await accept(store, deletion_of(2, 3)))
        assert not is_left(tmp_path, SECRET)
        assert await waiting(store) == ([] if has_ended else [asked.id])
        assert await questions(store) == []


async def test_edit_takes_an_answer_to_a_question_back(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        _, turn = await answered_question(store)
        await mark(store, await finish(store, turn, [f"Ordered: {SECRET}"]), 10)
        edit = await accept(store, edit_of(2, 3, "never mind"))
        outcome, _ = await store.changes.settle_edit(edit, answered_within_ms=TEN_MINUTES_MS)
        assert outcome == "answered"
    assert not is_left(tmp_path, SECRET)


async def test_timer_takes_an_answer_to_a_question_back(tmp_path: Path) -> None:
    soon = now_ms() + HOUR_MS
    async with store_at(tmp_path) as store:
        _, turn = await answered_question(store, expires_at=soon)
        await mark(store, await finish(store, turn, [f"Ordered: {SECRET}"]), 10)
        assert (await store.upkeep.expire()).next_at == soon
        await store.upkeep.expire(soon)
    assert not is_left(tmp_path, SECRET)


async def told_in_catch_up(store: ConversationStore) -> StoredTurn:
    """Tell a turn what another person said, and let it remember that and remind of it."""
    await store.catch_up.switch_on(GROUP)
    await answer(store, received(1, "I am here", GROUP))
    await store.messages.overhear([received(2, f"I like a {SECRET}", GROUP, author="ben")])
    asked = await accept(store, received(3, "what did I miss?", GROUP, received_at=now_ms() + 1))
    turn = store.turns.begin([asked], "what did I miss?")
    missed = await store.catch_up.missed(GROUP, "ada", turn_id=turn.id, hours=0)
    assert missed is not None
    assert await store.catch_up.tell(missed[1], turn.id)
    await remember(store, turn)
    await remind(store, turn)
    return turn


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("is_cleared", [False, True])
async def test_effects_of_catch_up_go_with_its_author_or_the_group(
    tmp_path: Path, is_deleted: bool, is_cleared: bool
) -> None:
    async with store_at(tmp_path) as store:
        turn = await told_in_catch_up(store)
        await mark(store, await finish(store, turn, [f"A {SECRET}"]), 10)
        if is_cleared:
            await store.turns.clear(GROUP)
        if is_deleted:
            deletion = deletion_of(2, 4, GROUP, author="ben")
            await store.changes.forget(await accept(store, deletion))
        else:
            await store.messages.overheard(GROUP)
            await store.catch_up.switch_off(GROUP)
        assert await store.memory.of_chat(GROUP) == ()
        assert await store.reminders.of("ada", GROUP) == ()
        assert not is_left(tmp_path, SECRET)


async def test_running_turn_derives_nothing_more_from_deleted_words(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await told_in_catch_up(store)
        deletion = await accept(store, deletion_of(2, 4, GROUP, author="ben"))
        assert (await store.changes.forget(deletion))[1] == (turn.id,)
        await remember(store, turn, f"another {SECRET}")
        await remind(store, turn, f"another {SECRET}")
        await mark(store, await finish(store, turn, [f"A {SECRET}"]), 10)
        await store.upkeep.expire()
    assert not is_left(tmp_path, SECRET)


async def test_reminder_made_from_a_fact_goes_with_the_source_of_the_fact(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = store.turns.begin([await accept(store, received(1, SECRET, GROUP))], SECRET)
        await remember(store, turn)
        await finish(store, turn)
        turn = store.turns.begin([await accept(store, received(2, "remind me", GROUP))], "x")
        assert await store.memory.recall(GROUP, "", 9, turn_id=turn.id)
        await remind(store, turn)
        await mark(store, await finish(store, turn), 10)
        await store.memory.forget(GROUP, 1)
        await store.changes.forget(await accept(store, deletion_of(1, 3, GROUP)))
        assert await store.reminders.of("ada", GROUP) == ()
    assert not is_left(tmp_path, SECRET)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("begun", [False, True])
async def test_quote_of_a_deleted_message_loses_its_text(
    tmp_path: Path, is_known: bool, begun: bool
) -> None:
    quote = ReceivedQuote(1, "ben", by_bot=False, text=SECRET)
    async with store_at(tmp_path) as store:
        if is_known:
            await answer(store, received(1, SECRET, GROUP, author="ben"))
        asked = await accept(store, received(2, "translate that", GROUP, quote=quote))
        if begun:
            turn = store.turns.begin([asked], f"[{SECRET}] translate that")
            await finish(store, turn, [SECRET])
        deletion = deletion_of(1, 3, GROUP, author="ben")
        assert await store.messages.knows_target(deletion)
        await store.changes.forget(await accept(store, deletion))
        assert not is_left(tmp_path, SECRET)
        assert await waiting(store) == ([] if begun else [asked.id])
        (still,) = (await store.messages.waiting_of([asked])) or (None,)
        assert begun or (still is not None and still.message.text == "translate that")


async def test_turn_does_not_begin_with_a_quote_that_was_deleted(tmp_path: Path) -> None:
    quote = ReceivedQuote(1, "ben", by_bot=False, text=SECRET)
    async with store_at(tmp_path) as store:
        asked = await accept(store, received(2, "translate that", GROUP, quote=quote))
        await store.changes.forget(await accept(store, deletion_of(1, 3, GROUP, author="ben")))
        turn = store.turns.begin([asked], f"[{SECRET}] translate that")
        assert await finish(store, turn) == ()
        (again,) = await store.messages.waiting_of([asked])
        turn = store.turns.begin([again], again.message.text)
        assert len(await finish(store, turn)) == 1
    assert not is_left(tmp_path, SECRET)


async def test_turn_that_quotes_an_answer_goes_with_the_question_of_the_answer(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, SECRET), [f"A {SECRET}"], sent_at=100)
        quote = ReceivedQuote(100, "bot", by_bot=True, text=f"A {SECRET}")
        asked = await accept(store, received(2, "why?", quote=quote))
        await finish(store, store.turns.begin([asked], f"[A {SECRET}] why?"), ["Because."])
        await store.changes.forget(await accept(store, deletion_of(1, 3)))
        assert await questions(store) == []
    assert not is_left(tmp_path, SECRET)


@pytest.mark.parametrize("how", ["deletion", "undo", "timer"])
async def test_files_of_a_message_are_to_be_deleted_with_it(tmp_path: Path, how: str) -> None:
    soon = now_ms() + HOUR_MS
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, "look", expires_at=soon))
        assert await store.files.add(accepted.message, "inbox/a.pdf")
        await mark(store, await finish(store, store.turns.begin([accepted], "look")), 10)
        assert await store.files.to_delete() == ()
        if how == "deletion":
            await store.changes.forget(await accept(store, deletion_of(1, 2)))
        elif how == "timer":
            assert (await store.upkeep.expire()).next_at == soon
            await store.upkeep.expire(soon)
        else:
            undo = await accept(store, received(2, "!undo"))
            question = await store.turns.last_question(ADA, undo.id, or_stopped=False)
            await store.turns.answer(undo, (), outcome="command", undone=question)
        (gone,) = await store.files.to_delete()
        assert gone == (ADA, "inbox/a.pdf")
        await store.files.deleted(*gone)
        assert rows(tmp_path, "SELECT * FROM workspace_files") == []


async def test_file_of_a_deleted_message_is_not_written(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, "look"))
        await store.changes.forget(await accept(store, deletion_of(1, 2)))
        assert not await store.files.add(accepted.message, "inbox/a.pdf")
        assert rows(tmp_path, "SELECT * FROM workspace_files") == []
