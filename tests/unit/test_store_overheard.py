"""What people say to each other in a group: kept within bounds, for one turn."""

from pathlib import Path

from conversation_store.heard import OVERHEARD_BYTES, OVERHEARD_ROWS
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    GROUP,
    TEN_MINUTES_MS,
    accept,
    deletion_of,
    edit_of,
    finish,
    is_left,
    received,
    store_at,
)

OTHER = ChatId.parse("group:other")


async def texts(store: ConversationStore, chat: ChatId = GROUP) -> list[str]:
    return [heard.text for heard in await store.messages.overheard(chat)]


async def test_overheard_messages_are_kept_once_and_in_order(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear(
            [received(1, "one", GROUP, sent_at=7), received(2, "two", GROUP)]
        )
        await store.messages.overhear([received(2, "two", GROUP), received(3, "else", OTHER)])
    async with store_at(tmp_path) as store:
        first, second = await store.messages.overheard(GROUP)
        assert (first.text, first.author_name, first.sent_at) == ("one", "Ada", 7)
        assert second.text == "two"
        assert await texts(store, OTHER) == ["else"]


async def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    many = [received(number, f"number {number}", GROUP) for number in range(OVERHEARD_ROWS + 7)]
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "other group", OTHER)])
        await store.messages.overhear(many)
        assert await texts(store) == [message.text for message in many[7:]]
        assert len(await texts(store, OTHER)) == 1
        await store.messages.overhear(many)
        assert await texts(store) == [message.text for message in many[7:]]


async def test_only_so_many_bytes_are_kept(tmp_path: Path) -> None:
    half = "é" * (OVERHEARD_BYTES // 4)
    async with store_at(tmp_path) as store:
        await store.messages.overhear(
            [received(number, f"{number}{half[1:]}", GROUP) for number in (1, 2)]
        )
        await store.messages.overhear([received(3, "three", GROUP)])
        assert [text[0] for text in await texts(store)] == ["2", "t"]
        await store.messages.overhear([received(4, "é" * 65_536, GROUP)])
        (cut,) = await texts(store)
        assert cut == "é" * (OVERHEARD_BYTES // 2)


async def test_turn_takes_overheard_messages_and_its_end_deletes_their_texts(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "small talk", GROUP)])
        accepted = await accept(store, received(2, chat=GROUP))
        turn = store.turns.begin([accepted], "q", overheard=await store.messages.overheard(GROUP))
        await store.upkeep.ping()
        assert await texts(store) == []
        await store.messages.overhear([received(3, "meanwhile", GROUP)])
        await finish(store, turn)
        assert await texts(store) == ["meanwhile"]
        await store.messages.overhear([received(1, "small talk", GROUP)])
        assert await texts(store) == ["meanwhile"]
        await store.upkeep.expire()
    assert not is_left(tmp_path, "small talk")


async def test_unanswered_turn_leaves_overheard_messages_to_the_next(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "small talk", GROUP)])
        first, second, third = [
            await accept(store, received(number, chat=GROUP)) for number in (2, 3, 4)
        ]
        store.turns.begin([first], "q", overheard=await store.messages.overheard(GROUP))
        await store.changes.stop([first.id])
        assert await texts(store) == ["small talk"]
        store.turns.begin([second], "q", overheard=await store.messages.overheard(GROUP))
        await store.turns.answer(second, ["Sorry."], outcome="bug")
        assert await texts(store) == ["small talk"]
        turn = store.turns.begin([third], "q", overheard=await store.messages.overheard(GROUP))
    async with store_at(tmp_path) as store:
        assert await texts(store) == []
        await store.turns.restart(turn.id)
        assert await texts(store) == ["small talk"]
        turn = store.turns.begin([third], "q", overheard=await store.messages.overheard(GROUP))
        await finish(store, turn)
        assert await texts(store) == []


async def test_edited_question_deletes_overheard_words_from_its_unsent_answer(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "secret words", GROUP)])
        question = await accept(store, received(2, "what was said?", GROUP, author="ben"))
        told = await store.messages.overheard(GROUP)
        await finish(store, store.turns.begin([question], "?", overheard=told), ["secret words"])
        edit = await accept(store, edit_of(2, 3, "what was that?", GROUP, author="ben"))
        await store.changes.settle_edit(edit, answered_within_ms=TEN_MINUTES_MS)
        await store.changes.forget(await accept(store, deletion_of(1, 4, GROUP)))
        assert not is_left(tmp_path, "secret")
