"""Questions in the store: asked, answered and begun once, and taken back with their answers."""

from dataclasses import replace
from pathlib import Path

import pytest

from conversation_store.models import (
    AcceptedMessage,
    AuditEntry,
    Message,
    QuestionTerms,
    Role,
    StoredQuestion,
    StoredTurn,
)
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    ADA,
    CALL,
    MAY_RUN,
    accept,
    edit_of,
    finish,
    forget,
    received,
    rows,
    store_at,
    waiting,
)

ALWAYS = QuestionTerms("call", "ada", covers=("write",), version="1")


async def turn_with_open_call(store: ConversationStore) -> tuple[AcceptedMessage, StoredTurn]:
    accepted = await accept(store, received(1))
    turn = store.turns.begin([accepted], "q")
    await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
    return accepted, turn


async def asked_about(
    store: ConversationStore, turn: StoredTurn, terms: QuestionTerms = MAY_RUN
) -> StoredQuestion:
    question = await store.questions.find_or_open(turn.id, CALL.id, terms)
    assert question is not None
    return question


async def test_question_is_found_again_as_it_was_asked(tmp_path: Path) -> None:
    other = replace(MAY_RUN, fingerprint="another")
    async with store_at(tmp_path) as store:
        _, turn = await turn_with_open_call(store)
        question = await asked_about(store, turn)
        assert question.answer is None
        assert await store.questions.open() == ()
        assert (await asked_about(store, turn, other)).terms == other
        asked = replace(question, timestamps=(41, 42), asked_at=7, expires_at=99, terms=other)
        await store.questions.mark_asked(asked)
    async with store_at(tmp_path) as store:
        assert await asked_about(store, turn) == asked
        assert await store.questions.open() == (asked,)


async def test_first_answer_counts_and_no_call_begins_after_a_no(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        _, turn = await turn_with_open_call(store)
        question = await asked_about(store, turn)
        assert await store.questions.answer(question.id, "no", by="ada")
        assert not await store.questions.answer(question.id, "yes", by="bob")
        await store.questions.begin(turn.id, CALL.id)
        found = await asked_about(store, turn)
        assert (found.answer, found.begun) == ("no", False)


async def test_allowed_call_begins_once_and_the_audit_names_the_person(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        _, turn = await turn_with_open_call(store)
        question = await asked_about(store, turn)
        yes = await accept(store, received(2, "yes"))
        assert await store.questions.answer(question.id, "yes", by="ada", message=yes)
        assert await waiting(store) == [turn.id]
        await store.questions.begin(turn.id, CALL.id)
        assert (await asked_about(store, turn)).begun
        entry = AuditEntry(1, ADA, "ada", turn.id, "calculate", "00" * 32, "ok", 3)
        await store.turns.record_result(CALL.id, "done", entry)
        assert await store.questions.find_or_open(turn.id, CALL.id, MAY_RUN) is None
        await store.upkeep.ping()
    assert rows(tmp_path, "SELECT tool, allowed_by FROM audit") == [("calculate", "ada")]


async def test_question_ends_with_its_turn(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        _, turn = await turn_with_open_call(store)
        question = await asked_about(store, turn)
        await store.questions.mark_asked(replace(question, timestamps=(42,), expires_at=99))
        await store.changes.stop((turn.id,))
        assert await store.questions.open() == ()
        assert not await store.questions.answer(question.id, "yes", by="ada")
        assert await store.questions.find(question.id) is None


async def answered_by_message(store: ConversationStore, answer: str) -> tuple[StoredTurn, int]:
    """Answer the question about a call by message 2; return its turn and the message's row."""
    _, turn = await turn_with_open_call(store)
    question = await asked_about(store, turn)
    said = await accept(store, received(2, answer))
    assert await store.questions.answer(question.id, answer, by="ada", message=said)
    return turn, said.id


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_answer_about_a_call_is_taken_back_until_a_call_begins(
    tmp_path: Path, answer: str
) -> None:
    async with store_at(tmp_path) as store:
        turn, said = await answered_by_message(store, answer)
        assert await store.questions.turn_of(said) == turn.id
        await forget(store, 2, 3)
        assert await store.turns.find(turn.id) is None
        assert await waiting(store) == [turn.id]
        assert await store.questions.open() == ()


async def test_yes_stays_once_its_call_has_begun(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn, said = await answered_by_message(store, "yes")
        await store.questions.begin(turn.id, CALL.id)
        assert await store.questions.turn_of(said) == said
        await forget(store, 2, 3)
        assert (await asked_about(store, turn)).begun


async def test_answer_about_a_call_leaves_its_turn_when_that_ends(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn, _ = await answered_by_message(store, "no")
        await finish(store, turn, ("Then not.",))
        edit = await accept(store, edit_of(2, 3, "no, thanks"))
        outcome, _ = await store.changes.settle_edit(edit, answered_within_ms=600_000)
        assert outcome == "too_late"
        await forget(store, 2, 4)
        assert await store.turns.find(turn.id) is not None


async def test_message_that_was_deleted_gives_no_grant(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        always = await accept(store, received(1, "always"))
        await forget(store, 1, 2)
        await store.grants.give(ADA, ALWAYS, by="ada", days=30, message=always.id)
        assert await store.grants.of_chat(ADA) == ()


@pytest.mark.parametrize("change", ["edit", "deletion"])
async def test_grant_is_taken_back_with_the_message_that_gave_it(
    tmp_path: Path, change: str
) -> None:
    async with store_at(tmp_path) as store:
        always = await accept(store, received(1, "always"))
        other = await accept(store, received(2, "always"))
        await store.grants.give(ADA, ALWAYS, by="ada", days=30, message=always.id)
        pay = replace(ALWAYS, covers=("pay",))
        await store.grants.give(ADA, pay, by="ada", days=30, message=other.id)
        if change == "edit":
            await store.turns.answer(always, (), outcome="approval")
            edit = await accept(store, edit_of(1, 3, "yes"))
            await store.changes.settle_edit(edit, answered_within_ms=600_000)
        else:
            await forget(store, 1, 3)
        assert [grant.subject for grant in await store.grants.of_chat(ADA)] == ["pay"]
