"""What is deleted or disappears is gone from the store, and from the bytes of its files."""

from dataclasses import replace
from pathlib import Path

import pytest

from conversation_store.models import (
    Attachment,
    ChatId,
    Image,
    Message,
    NewExchange,
    Quote,
    ReceivedFile,
    ReceivedQuote,
    Role,
)
from conversation_store.outbox import UNSENT_MS
from tests.unit.stores import (
    ADA,
    CALL,
    GROUP,
    MAY_RUN,
    TEN_MINUTES_MS,
    accept,
    answer,
    call,
    deletion_of,
    edit_of,
    finish,
    is_left,
    mark,
    questions,
    received,
    rows,
    store_at,
    waiting,
)

IMAGE = Image("image/png", b"secret image")
FILE = Attachment("secret.txt", "text/plain", b"secret file")
FAR = 4_000_000_000_000


async def test_a_message_is_deleted_with_all_that_was_derived_from_it(tmp_path: Path) -> None:
    exchange = NewExchange("c1", "aa" * 32, "bb" * 32)
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept"))
        pieces = [await accept(store, received(number, "secret words")) for number in (2, 3)]
        turn = store.turns.begin(pieces, "secret", images=[IMAGE], notices=["secret voice"])
        await call(store, turn, "secret result", files=[FILE])
        parts = await finish(store, turn, ["secret one", "secret two"], exchanged=(exchange,))
        await mark(store, parts[:1], 100)
        deletion = await accept(store, deletion_of(3, 4))
    async with store_at(tmp_path) as store:
        assert (await store.changes.forget(deletion))[0] == ()
        assert not is_left(tmp_path, "secret")
        assert await questions(store) == ["kept"]
        assert await waiting(store) == []
        assert await store.outbox.unfinished() == ()
        assert await store.exchanges.unchecked(10) == ()
        assert rows(tmp_path, "SELECT tool FROM audit") == [("calculate",)]


async def test_a_deletion_takes_the_edits_of_a_message_along(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "secret one"))
        edit = await accept(store, edit_of(1, 2, "secret two"))
        _, edit = await store.changes.settle_edit(edit, answered_within_ms=TEN_MINUTES_MS)
        await mark(store, await finish(store, store.turns.begin([edit], "secret two")), 50)
        waits = await accept(store, edit_of(2, 3, "secret three"))
        assert (await store.changes.forget(await accept(store, deletion_of(2, 4))))[0] == (
            waits.id,
        )
        assert await questions(store) == []
        assert not is_left(tmp_path, "secret")
        late = [received(1, "secret"), edit_of(1, 5, "secret"), edit_of(3, 6, "secret")]
        assert await store.messages.accept(late) == (None, None, None)
        assert not is_left(tmp_path, "secret")


async def test_the_other_pieces_of_a_turn_that_runs_wait_on(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        pieces = [await accept(store, received(number, f"words {number}")) for number in (1, 2, 3)]
        turn = store.turns.begin(pieces, "words 1 words 2 words 3")
        deletion = await accept(store, deletion_of(1, 4))
        assert await store.messages.find_target(deletion.message) == pieces[0].id
        assert (await store.changes.forget(deletion))[0] == (pieces[0].id,)
        assert await finish(store, turn) == ()
    async with store_at(tmp_path) as store:
        found = await store.messages.unfinished()
        assert found == tuple(pieces[1:])
        await finish(store, store.turns.begin(found, "words 2 words 3"))
        assert await questions(store) == ["words 2 words 3"]
    assert not is_left(tmp_path, "words 1")


async def test_a_deletion_that_a_crash_has_kept_from_being_carried_out_waits(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        target = await accept(store, received(1, "secret"))
        deletion = await accept(store, deletion_of(1, 2))
    async with store_at(tmp_path) as store:
        assert await store.messages.unfinished() == (target, deletion)
        assert (await store.changes.forget(deletion))[0] == (target.id,)
        assert (await store.changes.forget(deletion))[0] == ()
        assert await waiting(store) == []


async def test_message_deleted_before_its_arrival_is_refused(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        first = await accept(store, deletion_of(1, 2))
        assert await store.messages.accept([received(1, "secret")]) == (None,)
        await store.changes.forget(first)
        await store.changes.forget(await accept(store, deletion_of(3, 4, GROUP)))
    async with store_at(tmp_path) as store:
        assert await store.messages.accept([received(1, "secret")]) == (None,)
        await store.messages.overhear([received(3, "secret", GROUP)])
        assert await store.messages.overheard(GROUP) == ()
        assert await store.messages.accept([edit_of(1, 5, "secret")]) == (None,)
        assert not is_left(tmp_path, "secret")
        elsewhere, other = await store.messages.accept([received(3), received(1, author="bob")])
        assert elsewhere is not None
        assert other is not None


async def test_the_word_of_another_counts_once_it_is_carried_out(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        refused = await accept(store, deletion_of(1, 2, GROUP, author="eve", of="ada"))
        await store.turns.answer(refused, (), outcome="refused")
        (taken,) = await store.messages.accept([received(1, chat=GROUP)])
        assert taken is not None
        carried_out = await accept(store, deletion_of(5, 6, GROUP, author="admin", of="ada"))
        await store.changes.forget(carried_out)
        assert await store.messages.accept([received(5, chat=GROUP)]) == (None,)


async def test_deleted_overheard_message_takes_its_turn_along(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear(
            [received(1, "secret talk", GROUP), received(2, "other", GROUP)]
        )
        accepted = await accept(store, received(3, chat=GROUP))
        heard = await store.messages.overheard(GROUP)
        turn = store.turns.begin([accepted], "secret talk other", overheard=heard)
        await mark(store, await finish(store, turn), 10)
        assert await questions(store, GROUP) == ["secret talk other"]
        assert (await store.changes.forget(await accept(store, deletion_of(1, 4, GROUP))))[0] == ()
        assert await questions(store, GROUP) == []
        assert not is_left(tmp_path, "secret talk")


async def test_running_turn_with_deleted_words_answers_and_is_deleted(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "secret talk", GROUP)])
        accepted = await accept(store, received(2, chat=GROUP))
        heard = await store.messages.overheard(GROUP)
        turn = store.turns.begin([accepted], "secret talk", overheard=heard)
        assert (await store.changes.forget(await accept(store, deletion_of(1, 3, GROUP))))[0] == ()
        (part,) = await finish(store, turn)
        await store.outbox.mark_sent(part, 10)
        assert await waiting(store) == []
        assert await questions(store, GROUP) == []
        await store.upkeep.expire()
    assert not is_left(tmp_path, "secret talk")


async def test_message_deleted_before_its_use_is_not_kept(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "secret talk", GROUP)])
        accepted = await accept(store, received(2, chat=GROUP))
        heard = await store.messages.overheard(GROUP)
        await store.changes.forget(await accept(store, deletion_of(1, 3, GROUP)))
        turn = store.turns.begin([accepted], "secret talk", overheard=heard)
        assert len(await finish(store, turn)) == 1
        assert await questions(store, GROUP) == []
    assert not is_left(tmp_path, "secret talk")


async def test_disappearing_message_takes_everything_derived_from_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept"))
        accepted = await accept(store, received(2, "secret", expires_at=FAR))
        turn = store.turns.begin([accepted], "secret", images=[IMAGE], notices=["secret voice"])
        await call(store, turn, "secret result")
        lost, sent = await finish(store, turn, ["secret one", "secret two"])
        await store.outbox.mark_failed(lost, give_up=True)
        await store.outbox.mark_sent(sent, 5)
    async with store_at(tmp_path) as store:
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        assert len(await questions(store)) == 2
        assert is_left(tmp_path, "secret one")
        assert (await store.upkeep.expire(FAR)).next_at is None
        assert await questions(store) == ["kept"]
        assert not is_left(tmp_path, "secret")


async def test_a_turn_that_ends_just_before_its_time_is_forgotten_at_its_time(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, "secret", expires_at=FAR))
        turn = store.turns.begin([accepted], "secret")
        # Somebody looks while the turn still runs, and comes again when this says so.
        assert (await store.upkeep.expire(FAR - 2)).next_at == FAR
        (part,) = await finish(store, turn)
        await store.outbox.mark_sent(part, 5)
        await store.upkeep.expire(FAR)
        assert await questions(store) == []
        assert not is_left(tmp_path, "secret")


async def test_a_turn_disappears_with_the_first_of_its_sources(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "talk", GROUP, expires_at=FAR)])
        for timestamp, expiry in ((2, [FAR + 1, None]), (4, [FAR + 2, FAR + 1])):
            pieces = [
                await accept(store, received(timestamp + number, chat=GROUP, expires_at=at))
                for number, at in enumerate(expiry)
            ]
            heard = await store.messages.overheard(GROUP)
            await finish(store, store.turns.begin(pieces, f"q{timestamp}", overheard=heard))
        assert (await store.upkeep.expire(FAR)).next_at == FAR + 1
        assert await questions(store, GROUP) == ["q4"]
        assert (await store.upkeep.expire(FAR + 1)).next_at == FAR + UNSENT_MS
        assert await questions(store, GROUP) == []


async def test_an_answer_that_is_still_to_be_sent_outlives_its_question(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, expires_at=FAR))
        (part,) = await finish(store, store.turns.begin([accepted], "q"), ["secret"])
        await store.upkeep.expire(FAR)
        assert await store.outbox.unfinished() == (part,)
        await store.outbox.mark_failed(part, give_up=True)
        await store.upkeep.expire(FAR)
        assert not is_left(tmp_path, "secret")


async def test_a_turn_that_runs_past_its_time_is_left_until_it_ends(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, "secret", expires_at=5))
        turn = store.turns.begin([accepted], "secret")
        assert await store.upkeep.expire() == await store.upkeep.expire(FAR)
    async with store_at(tmp_path) as store:
        (found,) = await store.messages.unfinished()
        assert found.message.text == "secret"
        resumed = await store.turns.resume(found)
        assert resumed is not None
        (part,) = await finish(store, resumed, ["done"])
        assert part.text == "done"
        assert await questions(store) == []
        await store.upkeep.expire()
    assert not is_left(tmp_path, "secret")
    assert turn.id == accepted.id


async def test_message_that_disappears_before_its_turn_still_owes_an_answer(
    tmp_path: Path,
) -> None:
    files = (ReceivedFile("file-1.jpg", "image/jpeg", name="secret.jpg"),)
    nameless = (ReceivedFile("file-1.jpg", "image/jpeg"),)
    async with store_at(tmp_path) as store:
        quote = ReceivedQuote(9, "bob", by_bot=False, text="secret as well")
        accepted = await accept(
            store, received(1, "secret", files=files, quote=quote, expires_at=FAR)
        )
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        expired = await store.upkeep.expire(FAR)
        assert [one.id for one in expired.waiting] == [accepted.id]
        assert (expired.waiting[0].message.text, expired.waiting[0].message.files) == ("", nameless)
        assert expired.next_at is None
        assert (await store.upkeep.expire(FAR)).waiting == ()
        assert not is_left(tmp_path, "secret")
    async with store_at(tmp_path) as store:
        (found,) = await store.messages.unfinished()
        assert found == expired.waiting[0]
        assert len(await store.turns.answer(found, ["Too late."], outcome="expired")) == 1
        assert await waiting(store) == []


async def test_overheard_messages_disappear(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "secret", GROUP, expires_at=FAR)])
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        assert (await store.upkeep.expire(FAR)).next_at is None
        assert await store.messages.overheard(GROUP) == ()
        assert not is_left(tmp_path, "secret")


async def test_deleted_text_of_any_size_is_gone_from_the_files_at_once(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number, size in enumerate((10, 1_000, 5_000, 70_000)):
            words = f"secret{number} " * (size // 8)
            await answer(store, received(10 * number, words), [words])
            await answer(store, received(10 * number + 1, f"kept{number} " * (size // 7)))
            assert is_left(tmp_path, f"secret{number}")
            await store.changes.forget(
                await accept(store, deletion_of(10 * number, 10 * number + 2))
            )
            assert not is_left(tmp_path, f"secret{number}")
        assert len(await questions(store)) == 4


@pytest.mark.parametrize("chat", [ADA, GROUP])
async def test_a_deletion_reaches_its_own_chat_alone(tmp_path: Path, chat: ChatId) -> None:
    other = GROUP if chat == ADA else ADA
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept", chat))
        assert (await store.changes.forget(await accept(store, deletion_of(1, 2, other))))[0] == ()
        assert await questions(store, chat) == ["kept"]


async def test_open_calls_of_a_deleted_turn_leave_no_questions(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "q")
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
        question = await store.questions.find_or_open(turn.id, CALL.id, MAY_RUN)
        assert question is not None
        await store.questions.mark_asked(replace(question, timestamps=(1,), expires_at=FAR))
        await store.changes.forget(await accept(store, deletion_of(1, 2)))
        assert await store.questions.open() == ()


async def test_waiting_answer_loses_its_quote_at_once_and_is_dropped_an_hour_later(
    tmp_path: Path,
) -> None:
    quote = Quote(1, "ada", "secret")
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, "secret", GROUP, expires_at=FAR))
        (part,) = await store.turns.answer(
            accepted, ["sorry words"], outcome="answered", quote=quote
        )
        assert await store.outbox.as_waiting(part) == part
        assert (await store.upkeep.expire(FAR - 1)).next_at == FAR
        assert (await store.upkeep.expire(FAR)).next_at == FAR + UNSENT_MS
        assert not is_left(tmp_path, "secret")
        assert await store.outbox.as_waiting(part) == replace(part, quote=None)
        assert (await store.upkeep.expire(FAR + UNSENT_MS)).next_at is None
        assert await store.outbox.as_waiting(part) is None
        assert not is_left(tmp_path, "sorry words")
