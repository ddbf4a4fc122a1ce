"""Edits in the store: of waiting, answered and overheard messages."""

from pathlib import Path

import pytest

from conversation_store.models import (
    Attachment,
    OutgoingMessage,
    ReceivedFile,
    ReceivedQuote,
    StyledText,
)
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    accept,
    answer,
    begin,
    call,
    edit_of,
    finish,
    forget,
    mark,
    received,
    settle,
    store_at,
    waiting,
)

FILE = Attachment("chart.png", "image/png", b"chart")


async def answer_edit(
    store: ConversationStore, target: int, timestamp: int, *parts: str | StyledText
) -> tuple[OutgoingMessage, ...]:
    """Answer an edit in place of the previous answer."""
    outcome, edit = await settle(store, edit_of(target, timestamp, f"edit {timestamp}"))
    assert outcome == "answered"
    turn = store.turns.begin([edit], edit.message.text)
    return await finish(store, turn, parts, replaces=edit.replaces)


def shapes(parts: tuple[OutgoingMessage, ...]) -> list[tuple[str, int | None, int]]:
    return [(part.text, part.replaces, len(part.attachments)) for part in parts]


async def test_a_message_that_waits_reads_as_its_edit_says(tmp_path: Path) -> None:
    files = (ReceivedFile("f", "image/png"),)
    quote = ReceivedQuote(3, "bob", by_bot=False)
    async with store_at(tmp_path) as store:
        target = await accept(store, received(1, "teh", expires_at=50))
        said = edit_of(1, 2, "the", files=files, quote=quote, expires_at=40)
        (edit, copy) = await store.messages.accept([said, said])
        assert edit is not None
        assert copy is None
        assert await store.messages.find_target(edit.message) == target.id
        merged = await store.changes.merge_edit(edit, target)
        again = await accept(store, edit_of(2, 3, "then"))
        assert await store.messages.find_target(again.message) == target.id
    async with store_at(tmp_path) as store:
        assert await store.messages.unfinished() == (merged, again)
        message = merged.message
        assert (message.timestamp, message.text, message.expires_at) == (1, "the", 40)
        assert (message.files, message.quote) == (files, quote)
        final = await store.changes.merge_edit(again, merged)
        assert await store.messages.unfinished() == (final,)
        assert final.message.text == "then"


async def test_turn_about_old_words_of_a_piece_does_not_continue(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        first, second = [await accept(store, received(number, "tow")) for number in (1, 2)]
        store.turns.begin([first, second], "tow\n\ntow")
        await store.changes.merge_edit(await accept(store, edit_of(2, 3, "two")), second)
    async with store_at(tmp_path) as store:
        found = await store.messages.unfinished()
        assert [(one.message.text, one.begun, one.joined) for one in found] == [
            ("tow", False, ()), ("two", False, ()),
        ]  # fmt: skip


async def test_parts_of_the_earlier_answer_that_are_not_sent_are_dropped(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        parts = await finish(store, await begin(store, received(1)), ["a", "b", "c"])
        await mark(store, parts[:1], 100)
        await store.outbox.mark_failed(parts[1], give_up=True)
        for timestamp in (2, 3):
            replacing = await answer_edit(store, 1, timestamp, "A", "B")
            assert shapes(replacing) == [("A", 100, 0), ("B", None, 0)]
            assert await store.outbox.unfinished() == replacing


async def test_files_follow_a_part_that_is_an_edit(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1), sent_at=100)
        for timestamp, shape in (
            (2, [("x", 100, 0), ("", None, 1)]),
            (3, [("x", 200, 0), ("", None, 1), ("", 201, 0)]),
        ):
            _, edit = await settle(store, edit_of(1, timestamp, "edited"))
            turn = store.turns.begin([edit], "edited")
            await call(store, turn, "drawn", files=[FILE])
            parts = await finish(store, turn, ["x"], replaces=edit.replaces)
            assert shapes(parts) == shape
            await mark(store, parts, timestamp * 100)


async def test_an_edit_that_was_settled_stays_so_however_long_a_restart_takes(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        first = await answer(store, received(1), sent_at=100)
        await settle(store, edit_of(1, 2, "edited"))
    async with store_at(tmp_path) as store:
        (edit,) = await store.messages.unfinished()
        assert edit.replaces == first.id
        settled = await store.changes.settle_edit(edit, answered_within_ms=-1)
        assert settled == ("answered", edit)
        assert await store.turns.answer(edit, (), outcome="rate_limited") == ()
        assert await store.outbox.unfinished() == ()


@pytest.mark.parametrize(
    "outcome", ["rate_limited", "mailbox_full", "approval", "stopped", "deleted"]
)
async def test_edit_of_a_refused_stopped_or_deleted_message_is_not_answered(
    tmp_path: Path, outcome: str
) -> None:
    async with store_at(tmp_path) as store:
        message = await accept(store, received(1))
        if outcome == "stopped":
            await store.changes.stop([message.id])
        elif outcome == "deleted":
            await finish(store, store.turns.begin([message], "q"))
        else:
            await store.turns.answer(message, ["Not now."], outcome=outcome)
        edit = await accept(store, edit_of(1, 2, "edited"))
        if outcome == "deleted":
            await forget(store, 1, 3)
        settled, _ = await store.changes.settle_edit(edit, answered_within_ms=600_000)
        assert settled == "too_late"
        assert await waiting(store) == []
