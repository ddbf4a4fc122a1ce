"""Questions in the store: asked, answered and begun once, and taken back with their answers."""

from dataclasses import replace
from pathlib import Path

from conversation_store.models import (
    AcceptedMessage,
    Message,
    QuestionTerms,
    Role,
    StoredQuestion,
    StoredTurn,
)
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    CALL,
    MAY_RUN,
    accept,
    forget,
    received,
    store_at,
)


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


async def answered_by_message(store: ConversationStore, answer: str) -> tuple[StoredTurn, int]:
    """Answer the question about a call by message 2; return its turn and the message's row."""
    _, turn = await turn_with_open_call(store)
    question = await asked_about(store, turn)
    said = await accept(store, received(2, answer))
    assert await store.questions.answer(question.id, answer, by="ada", message=said)
    return turn, said.id


async def test_yes_stays_once_its_call_has_begun(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn, said = await answered_by_message(store, "yes")
        await store.questions.begin(turn.id, CALL.id)
        assert await store.questions.turn_of(said) == said
        await forget(store, 2, 3)
        assert (await asked_about(store, turn)).begun
