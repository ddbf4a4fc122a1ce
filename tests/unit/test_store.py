"""The public interface of the conversation store: messages, turns, history and the outbox."""

import asyncio
from pathlib import Path

import apsw
import pytest

from conversation_store.models import (
    DAY_MS,
    Attachment,
    ChatId,
    Image,
    Message,
    NewExchange,
    Quote,
    ReceivedFile,
    ReceivedQuote,
    Role,
    StoredTurn,
    StyledText,
    StyleRange,
    TextStyle,
)
from conversation_store.store import ConversationStore
from conversation_store.turns import MAX_IMAGES_OF_RESULTS
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
    is_left,
    mark,
    now_ms,
    questions,
    received,
    rows,
    store_at,
    waiting,
)

BOB = ChatId.parse("direct:bob")
IMAGE = Image("image/jpeg", b"\xff\xd8 a cat")
QUOTE = Quote(1, "ada", "hello")
CALLING = Message(Role.ASSISTANT, None, (CALL,))
EXCHANGES = [NewExchange(f"chatcmpl-{number}", f"{number}a" * 32, "bb" * 32) for number in range(3)]
FAR = 4_000_000_000_000
MEBIBYTE = 1024 * 1024


async def resumed(store: ConversationStore) -> StoredTurn:
    """Continue the one turn that a restart has left."""
    (unfinished,) = await store.messages.unfinished()
    turn = await store.turns.resume(unfinished)
    assert turn is not None
    return turn


async def past(store: ConversationStore, chat: ChatId = ADA) -> tuple[tuple[Message, ...], ...]:
    return (await store.turns.history(chat, max_bytes=10_000)).turns


async def test_everything_that_was_received_is_found_again_after_a_restart(tmp_path: Path) -> None:
    whole = received(
        5,
        "look 👀",
        GROUP,
        sent_at=17,
        author_number="+49151",
        files=(ReceivedFile("a.jpg", "image/jpeg", "cat", 7), ReceivedFile("v", "audio/aac")),
        quote=ReceivedQuote(
            3, "bob", by_bot=False, text="what?", file="picture", file_name="a.png"
        ),
        expires_at=FAR,
        view_once=True,
    )
    edit, deletion = edit_of(5, 6, "looks", GROUP), deletion_of(4, 7, GROUP, of="bob")
    async with store_at(tmp_path) as store:
        accepted = [await accept(store, message) for message in (whole, edit, deletion)]
    async with store_at(tmp_path) as store:
        assert await store.messages.unfinished() == tuple(accepted)
        assert [one.message for one in accepted] == [whole, edit, deletion]


async def test_an_answer_is_unfinished_until_it_is_sent_or_given_up(tmp_path: Path) -> None:
    styles = (StyleRange(0, 4, TextStyle.BOLD), StyleRange(2, 6, TextStyle.ITALIC))
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1, chat=GROUP))
        parts = await finish(store, turn, [StyledText("bold words", styles), "lost"], quote=QUOTE)
        assert [part.quote for part in parts] == [QUOTE, None]
        note = await store.outbox.add_note(ADA, "one")
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == (*parts, note)
        for part in (*parts, note):
            await store.outbox.mark_failed(part, give_up=False)
        again = await store.outbox.unfinished()
        assert [part.attempts for part in again] == [1, 1, 1]
        await store.outbox.mark_sent(again[0], 99)
        await store.outbox.mark_sent(again[2], 98)
        await store.outbox.mark_failed(again[1], give_up=True)
        assert await store.outbox.unfinished() == ()
    kept = rows(tmp_path, "SELECT state, text, styles, quote FROM outbox ORDER BY id")
    assert kept == [
        ("sent", None, None, None), ("given_up", "lost", None, None), ("sent", None, None, None),
    ]  # fmt: skip
    assert rows(tmp_path, "SELECT body FROM inbox") == [(None,)]


async def test_write_happens_even_if_its_caller_is_cancelled(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        (outgoing,) = await finish(store, await begin(store, received(1)))
        marking = asyncio.create_task(store.outbox.mark_sent(outgoing, 5))
        await asyncio.sleep(0)
        marking.cancel()
        await asyncio.wait({marking})
        assert marking.cancelled()
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == ()


async def test_second_answer_fails_and_leaves_its_batch_intact(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        accepted = await accept(store, received(1))
        await store.turns.answer(accepted, ["one"], outcome="command")
        results = await asyncio.gather(
            store.messages.accept([received(2)]),
            store.turns.answer(accepted, ["two"], outcome="command"),
            store.messages.accept([received(3)]),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [tuple, apsw.ConstraintError, tuple]
        assert len(await store.messages.unfinished()) == 2


async def test_history_is_cut_at_a_turn_that_does_not_fit(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number in range(5):
            await answer(store, received(number, f"q{number}" + "x" * 98), ["y" * 100])
        turns = (await store.turns.history(ADA, max_bytes=500)).turns
        assert [turn[0].content for turn in turns] == ["q3" + "x" * 98, "q4" + "x" * 98]
        assert (await store.turns.history(ADA, max_bytes=100)).turns == ()
        assert await past(store, BOB) == ()


@pytest.mark.parametrize("how", ["stopped", "a bug"])
async def test_a_turn_without_an_answer_leaves_nothing_and_closes_its_pieces(
    tmp_path: Path, how: str
) -> None:
    file = Attachment("a.png", "image/png", b"secret file")
    async with store_at(tmp_path) as store:
        pieces = [await accept(store, received(number)) for number in (1, 2)]
        turn = store.turns.begin(pieces, "secret plan", images=[IMAGE], notices=["secret voice"])
        await call(store, turn, "secret result", files=[file])
        if how == "stopped":
            await store.changes.stop([pieces[0].id])
        else:
            joined = pieces[1:]
            parts = await store.turns.answer(pieces[0], ["Sorry."], outcome="bug", joined=joined)
            assert [(part.text, part.quote) for part in parts] == [("Sorry.", None)]
        assert await waiting(store) == []
        assert await past(store) == ()
        assert rows(tmp_path, "SELECT * FROM turn_files") == []
        assert await store.upkeep.purge(FAR) == 1
    assert not is_left(tmp_path, "secret")
    assert not is_left(tmp_path, "a cat")


async def test_retention_deletes_old_turns_and_keeps_waiting_ones(tmp_path: Path) -> None:
    async with store_at(tmp_path, retention_days=1) as store:
        await store.messages.overhear([received(1, "bygone talk", GROUP)])
        waits = await accept(store, received(2))
        unsent = await finish(store, await begin(store, received(3, "bygone")))
        forgotten = await answer(store, received(4, "bygone question"))
        assert await store.upkeep.purge(now_ms() + 20 * DAY_MS) == 2
        assert await store.messages.accept([received(4)]) == (None,)
        await store.upkeep.purge(FAR)
        assert await store.messages.unfinished() == (waits,)
        assert await store.outbox.unfinished() == unsent
        later = await accept(store, received(5))
        assert later.id > forgotten.id, "The id of a forgotten message names no other"
    assert not is_left(tmp_path, "bygone")


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


async def test_the_newest_images_come_along_with_the_history(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        for number in range(4):
            images = [Image("image/png", f"{number}.{half}".encode()) for half in (1, 2)]
            await finish(store, await begin(store, received(number), images=images))
        bob = received(9, chat=BOB, author="bob")
        await finish(store, await begin(store, bob, images=[IMAGE]))
        shown = [[image.data for image in turn[0].images] for turn in await past(store)]
    assert shown == [[], [], [b"2.1", b"2.2"], [b"3.1", b"3.2"]]


@pytest.mark.parametrize("source", ["a person", "a tool"])
async def test_the_first_image_of_a_chat_comes_with_its_history(
    tmp_path: Path, source: str
) -> None:
    async with store_at(tmp_path) as store:
        await finish(store, await begin(store, received(1)))
        assert await past(store)
        turn = await begin(store, received(2), images=[IMAGE] if source == "a person" else [])
        if source == "a tool":
            await call(store, turn, "a chart", images=[IMAGE])
        await finish(store, turn)
        assert IMAGE in [one for message in (await past(store))[1] for one in message.images]
    async with store_at(tmp_path) as store:
        assert IMAGE in [one for message in (await past(store))[1] for one in message.images]


async def test_newest_images_of_results_are_kept_until_their_turn_expires(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        message = received(1, expires_at=now_ms() + DAY_MS)
        turn = await begin(store, message, images=[IMAGE])
        for number in range(MAX_IMAGES_OF_RESULTS + 3):
            await call(store, turn, "a chart", images=[Image("image/png", b"%d" % number)])
        await store.upkeep.ping()
        kept = [data for (data,) in rows(tmp_path, "SELECT data FROM images ORDER BY id")]
        assert kept == [IMAGE.data, *(b"%d" % n for n in range(3, MAX_IMAGES_OF_RESULTS + 3))]
        await mark(store, await finish(store, turn), 5)
        await store.upkeep.expire(now_ms() + DAY_MS)
        assert rows(tmp_path, "SELECT * FROM images") == []


async def test_files_of_tools_go_out_with_the_first_part_and_are_kept_no_longer(
    tmp_path: Path,
) -> None:
    sizes = [8, 8, 8, 7, 8, 1, 0]
    files = [
        Attachment(f"{number}", "x/y", b"f" * (size * MEBIBYTE))
        for number, size in enumerate(sizes)
    ]
    async with store_at(tmp_path) as store:
        await call(store, await begin(store, received(1)), "drawn", files=files)
    async with store_at(tmp_path) as store:
        parts = await finish(store, await resumed(store), ["one", "two"])
        fitting = tuple(files[number] for number in (0, 1, 2, 3, 5, 6))
        assert [part.attachments for part in parts] == [fitting, ()]
        assert await store.outbox.unfinished() == parts
        await mark(store, parts, 7)
        for table in ("turn_files", "attachments"):
            assert rows(tmp_path, f"SELECT * FROM {table}") == []
        await store.upkeep.expire()
    assert not is_left(tmp_path, "f" * 1_000)


async def test_words_of_strangers_are_found_in_results_and_messages(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "[a letter] Dear Ada"))
        assert await store.turns.has_result_with(ADA, "[a letter]")
        assert not await store.turns.has_result_with(ADA, "[a page]")
        assert not await store.turns.has_result_with(GROUP, "[a letter]")


async def answered_with(store: ConversationStore, timestamp: int, *exchanged: NewExchange) -> None:
    turn = await begin(store, received(timestamp))
    await store.turns.record_calls(turn.id, CALLING, exchanged[:1])
    await mark(store, await finish(store, turn, exchanged=exchanged[1:]), timestamp)


async def test_exchanges_of_a_turn_wait_until_it_is_over_and_are_settled_once(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1))
        await store.turns.record_calls(turn.id, CALLING, EXCHANGES[:1])
        assert await store.exchanges.unchecked(10) == ()
        await answered_with(store, 2, *EXCHANGES)
        unchecked = await store.exchanges.unchecked(10)
        assert [one.completion_id for one in unchecked] == [f"chatcmpl-{n}" for n in range(3)]
        for one in unchecked:
            await store.exchanges.settle(one, "proven", kind="gateway", message="Fine.")
        assert await store.exchanges.unchecked(10) == ()
        await store.exchanges.settle(unchecked[0], "wrong", kind="", message="No.")
        await begin(store, received(3))  # has no answer yet
        shown = await store.exchanges.of_last_answer(ADA)
        assert [(one.state, one.kind, one.message) for one in shown] == [
            ("proven", "gateway", "Fine.")
        ] * 3
        assert await store.exchanges.of_last_answer(BOB) == ()


async def test_a_wrong_signature_is_announced_once_after_the_turns_answer(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answered_with(store, 1, *EXCHANGES)
        warnings = [
            await store.exchanges.settle(
                one, "wrong", kind="", message="", warning="No, {}!".format
            )
            for one in await store.exchanges.unchecked(10)
        ]
        assert [len(parts) for parts in warnings] == [1, 0, 0]
        assert [part.text for part in await store.outbox.unfinished()] == ["No, direct:ada!"]


async def test_forgotten_turns_lose_their_exchanges_to_no_later_one(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answered_with(store, 1, *EXCHANGES[:1])
        [forgotten] = await store.exchanges.unchecked(10)
        await store.turns.clear(ADA)
        turn = await begin(store, received(2))
        await store.turns.record_calls(turn.id, CALLING, EXCHANGES[:1])
        await store.changes.stop((turn.id,))
        assert await store.exchanges.unchecked(10) == ()
        await answered_with(store, 3, *EXCHANGES[1:2])
        unchecked = await store.exchanges.unchecked(10)
        await store.exchanges.settle(forgotten, "proven", kind="", message="Fine.")
        assert await store.exchanges.unchecked(10) == unchecked
    assert [one.completion_id for one in unchecked] == [EXCHANGES[1].completion_id]


async def test_without_retention_an_exchange_lives_until_it_is_checked(tmp_path: Path) -> None:
    async with store_at(tmp_path, retention_days=0) as store:
        await answered_with(store, 1, *EXCHANGES[:2])
        first, second = await store.exchanges.unchecked(10)
        await store.exchanges.settle(first, "proven", kind="", message="")
        await store.upkeep.purge()
        assert await store.exchanges.unchecked(10) == (second,)
        assert await store.exchanges.of_last_answer(ADA) == ()
        (warning,) = await store.exchanges.settle(
            second, "wrong", kind="", message="", warning="Careful, {}!".format
        )
        assert warning.chat == "direct:ada"
