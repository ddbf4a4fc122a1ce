"""Messages between people in a group: kept within bounds, for one turn."""

from pathlib import Path

from conversation_store.heard import OVERHEARD_BYTES
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore
from conversation_store.turns import Told
from tests.unit.stores import (
    GROUP,
    accept,
    begin,
    finish,
    is_left,
    received,
    store_at,
)


async def texts(store: ConversationStore, chat: ChatId = GROUP) -> list[str]:
    return [heard.text for heard in await store.messages.overheard(chat)]


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


async def test_unanswered_turn_leaves_overheard_messages_to_the_next(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await store.messages.overhear([received(1, "small talk", GROUP)])
        heard = await store.messages.overheard(GROUP)
        stopped = await begin(store, received(2, chat=GROUP), told=Told(heard))
        await store.changes.stop([stopped.id])
        assert await texts(store) == ["small talk"]
        failed = await accept(store, received(3, chat=GROUP))
        store.turns.begin([failed], "q", told=Told(heard))
        await store.turns.answer(failed, ["Sorry."], outcome="bug")
        assert await texts(store) == ["small talk"]
        turn = await begin(store, received(4, chat=GROUP), told=Told(heard))
    async with store_at(tmp_path) as store:
        assert await texts(store) == []
        await store.turns.restart(turn.id)
        assert await texts(store) == ["small talk"]
        turn = await begin(store, received(5, chat=GROUP), told=Told(heard))
        await store.messages.overhear([received(6, "meanwhile", GROUP)])
        await finish(store, turn)
        await store.messages.overhear([received(1, "small talk", GROUP)])
        assert await texts(store) == ["meanwhile"]
        await store.upkeep.expire()
    assert not is_left(tmp_path, "small talk")
