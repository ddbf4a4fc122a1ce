"""Turns in the store: pieces, images, files of tools, quotes, and what a crash leaves of them."""

from dataclasses import replace
from pathlib import Path

from conversation_store.models import (
    DAY_MS,
    Attachment,
    AuditEntry,
    ChatId,
    Image,
    Message,
    Quote,
    ReceivedFile,
    ReceivedQuote,
    Role,
    StyledText,
    StyleRange,
    TextStyle,
)
from conversation_store.turns import MAX_IMAGES_OF_RESULTS
from tests.unit.stores import (
    ADA,
    CALL,
    GROUP,
    accept,
    answer,
    call,
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

IMAGE = Image("image/jpeg", b"\xff\xd8 a cat")
QUOTE = Quote(1, "ada", "hello")
MEBIBYTE = 1024 * 1024
BOB = ChatId.parse("direct:bob")


async def test_everything_that_was_received_is_found_again_after_a_restart(tmp_path: Path) -> None:
    whole = received(
        5,
        "look 👀",
        GROUP,
        sent_at=17,
        author_number="+49151",
        files=(ReceivedFile("a.jpg", "image/jpeg", "cat", 7), ReceivedFile("v", "audio/aac")),
        quote=ReceivedQuote(3, "bob", by_bot=False, text="what?", has_files=True),
        expires_at=4_000_000_000_000,
        view_once=True,
    )
    edit, deletion = edit_of(5, 6, "looks", GROUP), deletion_of(4, 7, GROUP, of="bob")
    async with store_at(tmp_path) as store:
        accepted = [await accept(store, message) for message in (whole, edit, deletion)]
    async with store_at(tmp_path) as store:
        assert await store.messages.unfinished() == tuple(accepted)
        assert [one.message for one in accepted] == [whole, edit, deletion]


async def test_pieces_are_one_turn_and_end_with_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        pieces = [await accept(store, received(number)) for number in (1, 2, 3)]
        other = await accept(store, received(1, chat=BOB, author="bob"))
        turn = store.turns.begin(pieces, "one two three", notices=["🎤 one"], images=[IMAGE])
        assert turn.id == pieces[0].id
    async with store_at(tmp_path) as store:
        first, second = await store.messages.unfinished()
        assert first == replace(pieces[0], begun=True, joined=tuple(pieces[1:]))
        assert second == other
        resumed = await store.turns.resume(first)
        assert resumed == replace(turn, attempts=2)
        (sent,) = await finish(store, resumed)
        assert sent.quote is None
        assert await waiting(store) == [other.id]
    outcomes = rows(tmp_path, "SELECT outcome, body FROM inbox ORDER BY id")
    assert outcomes[:3] == [("answered", None), ("joined", None), ("joined", None)]


async def test_a_turn_that_is_begun_afresh_may_have_other_pieces(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        pieces = [await accept(store, received(number)) for number in (1, 2, 3)]
        turn = store.turns.begin(pieces[:2], "the first try", images=[IMAGE])
        await call(store, turn, "the first result")
        await store.turns.restart(turn.id)
        assert await waiting(store) == [piece.id for piece in pieces]
    async with store_at(tmp_path) as store:
        found = await store.messages.unfinished()
        assert [(one.begun, one.joined) for one in found] == [(False, ())] * 3
        await finish(store, store.turns.begin(pieces[1:], "the second try"))
        assert await waiting(store) == [pieces[0].id]
        assert await questions(store) == ["the second try"]
    assert not is_left(tmp_path, "the first")


async def test_a_row_of_an_earlier_try_is_not_in_the_way(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        store.turns.begin([accepted], "the first try", images=[IMAGE])
        turn = store.turns.begin([accepted], "the second try")
        await finish(store, turn)
        assert (await store.turns.history(ADA, max_bytes=1_000)).turns == (
            (Message(Role.USER, "the second try"), Message(Role.ASSISTANT, "a")),
        )


async def test_stopping_a_turn_closes_its_pieces(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        pieces = [await accept(store, received(number)) for number in (1, 2)]
        store.turns.begin(pieces, "secret plan", images=[IMAGE], notices=["secret voice"])
        await store.changes.stop([pieces[0].id])
        assert await waiting(store) == []
    assert not is_left(tmp_path, "secret")
    assert not is_left(tmp_path, "a cat")


async def test_answer_without_a_turn_closes_all_its_messages(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        first, second = [await accept(store, received(number)) for number in (1, 2)]
        parts = await store.turns.answer(first, ["x"], outcome="no_words", joined=[second])
        assert [(part.text, part.quote) for part in parts] == [("x", None)]
        assert await waiting(store) == []


async def test_the_newest_images_come_along_with_the_history(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number in range(4):
            accepted = await accept(store, received(number))
            images = [Image("image/png", f"{number}.{half}".encode()) for half in (1, 2)]
            await finish(store, store.turns.begin([accepted], f"q{number}", images=images))
        bob = await accept(store, received(9, chat=BOB, author="bob"))
        await finish(store, store.turns.begin([bob], "bob's", images=[IMAGE]))
    async with store_at(tmp_path) as store:
        turns = (await store.turns.history(ADA, max_bytes=1_000)).turns
    shown = [[image.data for image in turn[0].images] for turn in turns]
    assert shown == [[], [], [b"2.1", b"2.2"], [b"3.1", b"3.2"]]


async def test_an_answer_keeps_styles_and_quote_until_it_is_sent(tmp_path: Path) -> None:
    styled = StyledText(
        "bold words", (StyleRange(0, 4, TextStyle.BOLD), StyleRange(2, 6, TextStyle.ITALIC))
    )
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1, chat=GROUP))
        turn = store.turns.begin([accepted], "q")
        sent = await finish(store, turn, [styled, "plain"], quote=QUOTE)
        assert [part.quote for part in sent] == [QUOTE, None]
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == sent
        await mark(store, sent, 5)
    assert rows(tmp_path, "SELECT DISTINCT text, styles, quote FROM outbox") == [(None, None, None)]


async def test_an_answer_is_a_reply_only_where_something_else_was_said_meanwhile(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        first, second = [await accept(store, received(number)) for number in (1, 2)]
        (to_first,) = await finish(store, store.turns.begin([first], "q"), quote=QUOTE)
        assert to_first.quote == QUOTE  # the second message came in between
        (to_second,) = await finish(store, store.turns.begin([second], "q"), quote=QUOTE)
        assert to_second.quote == QUOTE  # the first answer came in between
        late = await accept(store, received(3, received_at=now_ms() + 60_000))
        (to_late,) = await finish(store, store.turns.begin([late], "q"), quote=QUOTE)
        assert to_late.quote is None
        other = await accept(store, received(4, chat=BOB, author="bob"))
        later = await accept(store, received(5, received_at=now_ms() + 60_000))
        await accept(store, received(6, chat=BOB, author="bob"))
        await store.turns.answer(other, ["elsewhere"], outcome="command")
        (to_later,) = await store.turns.answer(later, ["x"], outcome="command", quote=QUOTE)
        assert to_later.quote is None


async def test_a_note_is_sent_like_an_answer_and_answers_nothing(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        notes = [await store.outbox.add_note(ADA, text) for text in ("one", "two")]
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == tuple(notes)
        await store.outbox.mark_sent(notes[0], 7)
        assert await store.outbox.unfinished() == (notes[1],)


async def test_fact_has_the_last_value(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        assert await store.get_metadata("profile") is None
        await store.set_metadata("profile", "one")
        await store.set_metadata("profile", "two")
    async with store_at(tmp_path) as store:
        assert await store.get_metadata("profile") == "two"


async def test_files_of_tools_go_out_with_the_first_part_and_are_kept_no_longer(
    tmp_path: Path,
) -> None:
    chart = Attachment("chart.png", "image/png", b"the chart" * 100)
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        await call(store, store.turns.begin([accepted], "q"), "drawn", files=[chart])
    async with store_at(tmp_path) as store:
        (accepted,) = await store.messages.unfinished()
        resumed = await store.turns.resume(accepted)
        assert resumed is not None
        parts = await finish(store, resumed, ["one", "two"])
        assert [part.attachments for part in parts] == [(chart,), ()]
        assert await store.outbox.unfinished() == parts
        await mark(store, parts, 7)
        await store.upkeep.expire()
        assert rows(tmp_path, "SELECT * FROM turn_files") == []
    assert not is_left(tmp_path, "the chart")


async def test_files_of_tools_that_are_too_many_are_left_out(tmp_path: Path) -> None:
    sizes = [8, 8, 8, 7, 8, 1, 0]
    files = [
        Attachment(f"{number}", "x/y", bytes(size * MEBIBYTE)) for number, size in enumerate(sizes)
    ]
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "q")
        await call(store, turn, "drawn", files=files)
        (part,) = await finish(store, turn)
        assert [file.name for file in part.attachments] == ["0", "1", "2", "3", "5", "6"]


async def test_nothing_is_stored_of_a_turn_that_was_forgotten_while_it_ran(tmp_path: Path) -> None:
    file = Attachment("secret", "x/y", b"secret")
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "secret")
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
        forgotten = await store.changes.forget(await accept(store, deletion_of(1, 2)))
        assert forgotten[0] == (accepted.id,)

        entry = AuditEntry(1, ADA, "ada", turn.id, "calculate", "00", "ok", 3)
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, "secret", (CALL,)))
        await store.turns.record_result(CALL.id, "secret", entry, files=[file])
        assert await finish(store, turn, ["secret"]) == ()
        assert await store.turns.answer(accepted, ["secret"], outcome="bug") == ()
        store.turns.begin([accepted], "secret")
        await store.upkeep.ping()
        assert rows(tmp_path, "SELECT tool FROM audit") == [("calculate",)]
        for table in ("turns", "messages", "outbox", "turn_files", "exchanges"):
            assert rows(tmp_path, f"SELECT * FROM {table}") == []
    assert not is_left(tmp_path, "secret")


async def test_without_retention_nothing_stays_past_the_turn(tmp_path: Path) -> None:
    file = Attachment("quiet.png", "image/png", b"quiet file")
    async with store_at(tmp_path, retention_days=0) as store:
        await store.messages.overhear([received(1, "quiet talk", GROUP)])
        assert await store.messages.overheard(GROUP) == ()
        pieces = [await accept(store, received(number, "quiet words")) for number in (2, 3)]
        turn = store.turns.begin(pieces, "quiet", images=[IMAGE], notices=["quiet voice"])
        await call(store, turn, "quiet result", files=[file])
        await mark(store, await finish(store, turn, ["quiet answer"]), 5)
        assert await questions(store) == []
    assert not is_left(tmp_path, "quiet")
    assert not is_left(tmp_path, "a cat")


async def test_images_of_a_result_stay_with_it_in_the_turn_and_in_the_history(
    tmp_path: Path,
) -> None:
    asked, shown = Image("image/png", b"asked"), Image("image/png", b"shown")
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "q", images=[asked])
        await call(store, turn, "a chart", images=[shown])
    async with store_at(tmp_path) as store:
        resumed = await store.turns.resume(accepted)
        assert resumed is not None
        assert [message.images for message in resumed.messages] == [(asked,), (), (shown,)]
        await finish(store, resumed)
        ((*messages, _),) = (await store.turns.history(ADA, max_bytes=1_000)).turns
        assert [message.images for message in messages] == [(asked,), (), (shown,)]


async def test_newest_images_of_results_are_kept(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = store.turns.begin([await accept(store, received(1))], "q", images=[IMAGE])
        for number in range(MAX_IMAGES_OF_RESULTS + 3):
            await call(store, turn, "a chart", images=[Image("image/png", b"%d" % number)])
        await store.upkeep.ping()
        kept = [data for (data,) in rows(tmp_path, "SELECT data FROM images ORDER BY id")]
    assert kept == [IMAGE.data, *(b"%d" % n for n in range(3, MAX_IMAGES_OF_RESULTS + 3))]


async def test_images_of_results_go_with_their_turn(tmp_path: Path) -> None:
    quiet = Image("image/png", b"quiet chart")
    async with store_at(tmp_path) as store:
        expiring = await accept(store, received(1, expires_at=now_ms() + 1))
        turn = store.turns.begin([expiring], "q")
        await call(store, turn, "a chart", images=[quiet])
        await mark(store, await finish(store, turn), 5)
        await store.upkeep.expire(now_ms() + 10)
        assert rows(tmp_path, "SELECT * FROM images") == []
    assert not is_left(tmp_path, "quiet chart")


async def test_clear_deletes_images_and_overheard_messages(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "secret talk", GROUP)])
        accepted = await accept(store, received(2, chat=GROUP))
        parts = await finish(store, store.turns.begin([accepted], "q", images=[IMAGE]))
        await mark(store, parts, 5)
        assert await store.turns.clear(GROUP) == 1
        assert await store.messages.overheard(GROUP) == ()
    assert not is_left(tmp_path, "secret talk")
    assert not is_left(tmp_path, "a cat")


async def test_retention_deletes_images_and_overheard_messages(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "bygone talk", GROUP)])
        await answer(store, received(2, "bygone question"))
        await store.upkeep.purge(4_000_000_000_000)
    assert not is_left(tmp_path, "bygone")


async def test_words_of_strangers_are_found_in_results_and_messages(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "[a letter] Dear Ada"))
        assert await store.turns.has_result_with(ADA, "[a letter]")
        assert not await store.turns.has_result_with(ADA, "[a page]")
        assert not await store.turns.has_result_with(GROUP, "[a letter]")


async def test_dropped_message_is_not_mistaken_for_a_later_one(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        question = await accept(store, received(1, "secret"))
        dropped = await finish(store, store.turns.begin([question], "secret"), ["to be dropped"])
        await store.changes.forget(await accept(store, deletion_of(1, 2)))
        other = await accept(store, received(3, "other"))
        parts = await finish(store, store.turns.begin([other], "other"), ["to be sent"])
        await mark(store, dropped, 100)
        assert await store.outbox.unfinished() == parts


async def test_neither_clear_nor_purge_takes_a_turn_that_runs(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = store.turns.begin([await accept(store, received(1))], "hello")
        assert await store.turns.clear(ADA) == 0
        assert await store.upkeep.purge(now_ms() + 1_000 * DAY_MS) == 0
        assert len(await finish(store, turn)) == 1
        assert await questions(store) == ["hello"]


async def test_the_files_of_a_turn_that_was_stopped_are_not_kept(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "draw")
        await call(store, turn, "drawn", files=[Attachment("a.png", "image/png", b"a cat")])
        await store.changes.stop([accepted.id])
        assert rows(tmp_path, "SELECT * FROM turn_files") == []


async def test_failed_results_are_known_after_a_restart(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        turn = store.turns.begin([accepted], "hello")
        store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
        entry = AuditEntry(1, ADA, "ada", turn.id, "calculate", "00" * 32, "timeout", 3)
        await store.turns.record_result(CALL.id, "It took too long.", entry)
    async with store_at(tmp_path) as store:
        (unfinished,) = await store.messages.unfinished()
        resumed = await store.turns.resume(unfinished)
        assert resumed is not None
        assert [message.failed for message in resumed.messages] == [False, False, True]
        await finish(store, resumed)
        (told,) = (await store.turns.history(ADA, max_bytes=10_000)).turns
        assert [message.failed for message in told] == [False, False, True, False]
