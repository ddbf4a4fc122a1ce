"""Deleted and disappeared messages leave the store and the bytes of its files.

A deletion follows the ids of everything derived from a message, at any distance.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from conversation_store.models import (
    Attachment,
    AuditEntry,
    ChatId,
    Image,
    Message,
    NewExchange,
    NewReminder,
    QuestionTerms,
    Quote,
    ReceivedFile,
    ReceivedQuote,
    Role,
    StoredTurn,
)
from conversation_store.outbox import UNSENT_MS
from conversation_store.store import ConversationStore
from conversation_store.turns import Told
from tests.unit.stores import (
    ADA,
    CALL,
    GROUP,
    accept,
    answer,
    begin,
    call,
    deletion_of,
    edit_of,
    finish,
    forget,
    is_left,
    mark,
    now_ms,
    questions,
    received,
    rows,
    settle,
    store_at,
    waiting,
)

SECRET = "quagga"
IMAGE = Image("image/png", SECRET.encode())
FILE = Attachment(f"{SECRET}.txt", "text/plain", SECRET.encode())
FAR = 4_000_000_000_000
HOUR_MS = 3_600_000


async def test_a_message_is_deleted_with_all_that_was_derived_from_it(tmp_path: Path) -> None:
    exchange = NewExchange("c1", "aa" * 32, "bb" * 32)
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept"))
        pieces = [await accept(store, received(number, SECRET)) for number in (2, 3)]
        turn = store.turns.begin(pieces, SECRET, images=[IMAGE], notices=[SECRET])
        await call(store, turn, SECRET, files=[FILE])
        parts = await finish(store, turn, [SECRET, SECRET], exchanged=(exchange,))
        await mark(store, parts[:1], 100)
        deletion = await accept(store, deletion_of(3, 4))
    async with store_at(tmp_path) as store:
        assert (await store.changes.forget(deletion))[0] == ()
        assert not is_left(tmp_path, SECRET)
        assert await questions(store) == ["kept"]
        assert await waiting(store) == []
        assert [(one.text, one.replaces) for one in await store.outbox.unfinished()] == [("", 100)]
        assert await store.exchanges.unchecked(10) == ()
        assert rows(tmp_path, "SELECT tool FROM audit") == [("calculate",)]


async def test_message_deleted_before_its_arrival_is_refused(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        first = await accept(store, deletion_of(1, 2))
        assert await store.messages.accept([received(1, SECRET)]) == (None,)
        await store.changes.forget(first)
        await forget(store, 3, 4, GROUP)
    async with store_at(tmp_path) as store:
        assert await store.messages.accept([received(1, SECRET)]) == (None,)
        await store.messages.overhear([received(3, SECRET, GROUP)])
        assert await store.messages.overheard(GROUP) == ()
        assert await store.messages.accept([edit_of(1, 5, SECRET)]) == (None,)
        assert not is_left(tmp_path, SECRET)
        assert all(await store.messages.accept([received(3), received(1, author="bob")]))


async def test_another_persons_deletion_applies_only_if_accepted(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        refused = await accept(store, deletion_of(1, 2, GROUP, author="eve", of="ada"))
        await store.turns.answer(refused, (), outcome="refused")
        await accept(store, received(1, chat=GROUP))
        await forget(store, 5, 6, GROUP, author="admin", of="ada")
        assert await store.messages.accept([received(5, chat=GROUP)]) == (None,)


@pytest.mark.parametrize("when", ["before its use", "while its turn runs", "after its use"])
async def test_deleted_overheard_message_takes_its_turn_along(tmp_path: Path, when: str) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, SECRET, GROUP), received(2, "other", GROUP)])
        heard = await store.messages.overheard(GROUP)
        accepted = await accept(store, received(3, chat=GROUP))
        if when == "before its use":
            await forget(store, 1, 4, GROUP)
        turn = store.turns.begin([accepted], f"{SECRET} other", told=Told(heard))
        if when == "while its turn runs":
            assert await forget(store, 1, 4, GROUP) == ()
        await mark(store, await finish(store, turn), 10)
        if when == "after its use":
            assert await questions(store, GROUP) == [f"{SECRET} other"]
            assert await forget(store, 1, 4, GROUP) == ()
        assert await waiting(store) == []
        assert await questions(store, GROUP) == []
        await store.upkeep.expire()
    assert not is_left(tmp_path, SECRET)


async def test_disappearing_message_takes_everything_derived_from_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept"))
        message = received(2, SECRET, expires_at=FAR)
        turn = await begin(store, message, images=[IMAGE], notices=[SECRET])
        await call(store, turn, SECRET)
        # The first check comes while the turn still runs, and names the time of the next.
        assert (await store.upkeep.expire(FAR - 2)).next_at == FAR
        lost, sent = await finish(store, turn, [f"{SECRET} one", "two"])
        await store.outbox.mark_failed(lost, give_up=True)
        await store.outbox.mark_sent(sent, 5)
    async with store_at(tmp_path) as store:
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        assert len(await questions(store)) == 2
        assert is_left(tmp_path, f"{SECRET} one")
        assert (await store.upkeep.expire(FAR)).next_at is None
        assert await questions(store) == ["kept"]
        assert not is_left(tmp_path, SECRET)


async def test_a_turn_disappears_with_the_first_of_its_sources(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "talk", GROUP, expires_at=FAR)])
        for timestamp, expiry in ((2, [FAR + 1, None]), (4, [FAR + 2, FAR + 1])):
            pieces = [
                await accept(store, received(timestamp + number, chat=GROUP, expires_at=at))
                for number, at in enumerate(expiry)
            ]
            heard = await store.messages.overheard(GROUP)
            await finish(store, store.turns.begin(pieces, f"q{timestamp}", told=Told(heard)))
        assert (await store.upkeep.expire(FAR)).next_at == FAR + 1
        assert await questions(store, GROUP) == ["q4"]
        assert (await store.upkeep.expire(FAR + 1)).next_at == FAR + UNSENT_MS
        assert await questions(store, GROUP) == []


async def test_waiting_answer_loses_its_quote_at_once_and_is_dropped_an_hour_later(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, SECRET, GROUP, expires_at=FAR))
        quote = Quote(1, "ada", SECRET)
        (part,) = await store.turns.answer(accepted, ["sorry"], outcome="answered", quote=quote)
        assert await store.outbox.as_waiting(part) == part
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        assert (await store.upkeep.expire(FAR)).next_at == FAR + UNSENT_MS
        assert not is_left(tmp_path, SECRET)
        assert await store.outbox.as_waiting(part) == replace(part, quote=None)
        assert (await store.upkeep.expire(FAR + UNSENT_MS)).next_at is None
        assert await store.outbox.as_waiting(part) is None
        assert not is_left(tmp_path, "sorry")


async def test_message_that_disappears_before_its_turn_still_owes_an_answer(tmp_path: Path) -> None:
    file = ReceivedFile("file-1.jpg", "image/jpeg", name=f"{SECRET}.jpg")
    quote = ReceivedQuote(9, "bob", by_bot=False, text=SECRET)
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(3, SECRET, GROUP, expires_at=FAR)])
        message = received(1, SECRET, files=(file,), quote=quote, expires_at=FAR)
        accepted = await accept(store, message)
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        expired = await store.upkeep.expire(FAR)
        (left,) = expired.waiting
        assert (left.id, left.message.text) == (accepted.id, "")
        assert left.message.files == (replace(file, name=None),)
        assert expired.next_at is None
        assert (await store.upkeep.expire(FAR)).waiting == ()
        assert await store.messages.overheard(GROUP) == ()
        assert not is_left(tmp_path, SECRET)
    async with store_at(tmp_path) as store:
        assert await store.messages.unfinished() == (left,)
        assert len(await store.turns.answer(left, ["Too late."], outcome="expired")) == 1
        assert await waiting(store) == []


async def test_deleted_text_of_any_size_is_gone_from_the_files_at_once(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number, size in enumerate((10, 1_000, 5_000, 70_000)):
            words = f"secret{number} " * (size // 8)
            await answer(store, received(10 * number, words), [words])
            await answer(store, received(10 * number + 1, f"kept{number} " * (size // 7)))
            assert is_left(tmp_path, f"secret{number}")
            await forget(store, 10 * number, 10 * number + 2)
            assert not is_left(tmp_path, f"secret{number}")
        assert len(await questions(store)) == 4


@pytest.mark.parametrize("chat", [ADA, GROUP])
async def test_a_deletion_affects_only_its_own_chat(tmp_path: Path, chat: ChatId) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept", chat))
        assert await forget(store, 1, 2, GROUP if chat == ADA else ADA) == ()
        assert await questions(store, chat) == ["kept"]


@pytest.mark.parametrize("how", ["deletion", "deletion at once", "edit", "timer"])
async def test_an_answer_to_a_question_is_taken_back(tmp_path: Path, how: str) -> None:
    soon = now_ms() + HOUR_MS
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1, "order lunch"))
        await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
        terms = QuestionTerms("choice", "ada")
        question = await store.questions.find_or_open(turn.id, CALL.id, terms)
        assert question is not None
        reply = received(2, SECRET, expires_at=soon if how == "timer" else None)
        assert await store.questions.answer(question.id, SECRET, message=await accept(store, reply))
        entry = AuditEntry(1, ADA, "ada", turn.id, "ask_user", "00", "ok", 3)
        await store.turns.record_result(CALL.id, f"They say: {SECRET}", entry)
        if how != "deletion at once":
            await mark(store, await finish(store, turn, [f"Ordered: {SECRET}"]), 10)
        if how == "timer":
            assert (await store.upkeep.expire()).next_at == soon
            await store.upkeep.expire(soon)
        elif how == "edit":
            assert (await settle(store, edit_of(2, 3, "never mind")))[0] == "answered"
        else:
            await forget(store, 2, 3)
            assert await waiting(store) == ([turn.id] if how == "deletion at once" else [])
            assert await questions(store) == []
    assert not is_left(tmp_path, SECRET)


async def remember(store: ConversationStore, turn: StoredTurn) -> None:
    await store.memory.remember(GROUP, SECRET, turn_id=turn.id, call=f"fact {turn.id}")


async def remind(store: ConversationStore, turn: StoredTurn) -> None:
    new = NewReminder(is_question=False, text=SECRET, local_at=None, repeat=None, due_at=now_ms())
    await store.reminders.add("ada", GROUP, new, turn=turn.id, call="remind", at_most=9)


async def told_in_catch_up(store: ConversationStore, expires_at: int | None = None) -> StoredTurn:
    """Tell a turn what another person said, and let it remember that and remind of it."""
    await store.catch_up.switch_on(GROUP)
    await answer(store, received(1, "I am here", GROUP))
    said = received(2, SECRET, GROUP, author="ben", expires_at=expires_at)
    await store.messages.overhear([said])
    turn = await begin(store, received(3, "what did I miss?", GROUP, received_at=now_ms() + 1))
    missed = await store.catch_up.missed(GROUP, "ada", turn_id=turn.id, hours=0)
    assert missed is not None
    assert await store.catch_up.tell(missed[1], turn.id)
    await remember(store, turn)
    await remind(store, turn)
    return turn


@pytest.mark.parametrize("how", ["deletion", "catch-up off", "timer"])
@pytest.mark.parametrize("is_cleared", [False, True])
async def test_effects_of_catch_up_go_with_its_author_or_the_group(
    tmp_path: Path, how: str, is_cleared: bool
) -> None:
    soon = now_ms() + HOUR_MS if how == "timer" else None
    async with store_at(tmp_path) as store:
        turn = await told_in_catch_up(store, soon)
        await mark(store, await finish(store, turn, [SECRET]), 10)
        if is_cleared:
            await store.turns.clear(GROUP)
        if how == "deletion":
            await forget(store, 2, 4, GROUP, author="ben")
        elif how == "timer":
            assert len(await store.memory.of_chat(GROUP)) == 1
            await store.upkeep.expire(soon)
        else:
            await store.messages.overheard(GROUP)
            await store.catch_up.switch_off(GROUP)
        assert await store.memory.of_chat(GROUP) == ()
        if how == "timer":  # the text of a reminder stays until it is said
            return
        assert await store.reminders.of("ada", GROUP) == ()
        assert not is_left(tmp_path, SECRET)


async def test_running_turn_derives_nothing_more_from_deleted_words(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await told_in_catch_up(store)
        deletion = await accept(store, deletion_of(2, 4, GROUP, author="ben"))
        assert (await store.changes.forget(deletion))[1] == (turn.id,)
        await store.memory.remember(GROUP, SECRET, turn_id=turn.id, call="another")
        await remind(store, turn)
        await mark(store, await finish(store, turn, [SECRET]), 10)
        await store.upkeep.expire()
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
        assert await store.messages.knows_target(deletion_of(1, 3, GROUP, author="ben"))
        await forget(store, 1, 3, GROUP, author="ben")
        assert not is_left(tmp_path, SECRET)
        assert await waiting(store) == ([] if begun else [asked.id])
        if not begun:  # a turn with the old quote does not begin, one without it does
            turn = store.turns.begin([asked], f"[{SECRET}] translate that")
            assert await finish(store, turn) == ()
            (again,) = await store.messages.waiting_of([asked])
            assert again.message.text == "translate that"
            turn = store.turns.begin([again], again.message.text)
            assert len(await finish(store, turn)) == 1
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
            await forget(store, 1, 2)
            assert not await store.files.add(accepted.message, "inbox/late.pdf")
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


@pytest.mark.parametrize("how", ["deletion", "deletion while it runs", "timer", "retention"])
async def test_a_turn_that_read_a_reminder_is_forgotten_with_its_source(
    tmp_path: Path, how: str
) -> None:
    expires_at = now_ms() + HOUR_MS if how == "timer" else None
    async with store_at(tmp_path) as store:
        source = await begin(store, received(1, chat=GROUP, expires_at=expires_at))
        await remind(store, source)
        await finish(store, source)
        turn = await begin(store, received(2, "list them", GROUP))
        (reminder,) = await store.reminders.tell("ada", GROUP, turn=turn.id)
        await call(store, turn, SECRET)
        other = await answer(store, received(3, chat=GROUP))
        if how == "deletion while it runs":
            await forget(store, 1, 99, GROUP)
        await finish(store, turn)
        await store.reminders.cancel("ada", GROUP, reminder.number)
        if how == "deletion":
            await forget(store, 1, 99, GROUP)
        await store.upkeep.expire(None if expires_at is None else now_ms() + HOUR_MS)
        if how == "retention":
            await store.upkeep.purge(now_ms() + 31 * 24 * HOUR_MS)
        left = [] if how == "retention" else [(other.id,)]
        assert rows(tmp_path, "SELECT id FROM turns") == left
        assert how == "retention" or not is_left(tmp_path, SECRET)
