"""The earlier turns in a request, and the common beginning of successive requests."""

import json
from itertools import pairwise
from pathlib import Path

from bot.chat.history import KEPT_SHARE, HistoryWindow
from conversation_store.history import MAX_HISTORY_ROWS
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore
from tests.unit.stores import ADA, answer, received, store_at

BOB = ChatId.parse("direct:bob")
MAX_BYTES = 10_000


async def answered(store: ConversationStore, number: int, *, text: str, chat: ChatId = ADA) -> None:
    await answer(store, received(number + 1, text, chat))


async def words_of(
    window: HistoryWindow, chat: ChatId = ADA, max_bytes: int = MAX_BYTES
) -> list[str]:
    past = await window.read(chat, max_bytes=max_bytes)
    return [message.content or "" for turn in past.turns for message in turn]


def shared(before: str, after: str) -> float:
    """Return the share of a request that the next one repeats at its beginning."""
    same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    return (len(before) if same is None else same) / len(before)


async def test_requests_fill_the_room_never_exceed_it_and_begin_alike(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        window = HistoryWindow(store)
        requests = []
        for number in range(120):
            await answered(store, number, text=f"{number} {'w' * 200}")
            words = await words_of(window)
            requests.append(json.dumps(words)[:-1])
            size = sum(map(len, words))
            assert size <= MAX_BYTES
            assert number < 60 or size > MAX_BYTES * KEPT_SHARE - 1_000
    full = [shared(*pair) for pair in pairwise(requests[50:])]
    assert sum(full) / len(full) > 0.9
    assert max(map(len, requests)) > MAX_BYTES * 0.9


async def test_omitted_turns_do_not_come_back(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        window = HistoryWindow(store)
        for number in range(20):
            await answered(store, number, text=f"{number} {'w' * 400}")
        short = await words_of(window, max_bytes=3_000)
        assert await words_of(window) == short


async def test_each_chat_has_its_window_and_clearing_resets_it(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        window = HistoryWindow(store)
        for number in range(40):
            await answered(store, number, text=f"{number} {'w' * 400}")
        await answered(store, 100, chat=BOB, text="hello")
        await words_of(window)
        assert (await words_of(window, BOB))[0].endswith("hello")
        await store.turns.clear(ADA)
        assert await words_of(window) == []
        await answered(store, 200, text="afresh")
        assert (await words_of(window))[0].endswith("afresh")


async def test_thousands_of_short_turns_are_cut_at_once(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        window = HistoryWindow(store)
        most = MAX_HISTORY_ROWS
        for number in range(most // 2 + 2):
            await answered(store, number, text="a")
        first = await words_of(window, max_bytes=10**9)
        assert len(first) <= most * KEPT_SHARE
        await answered(store, 10_000, text="b")
        assert (await words_of(window, max_bytes=10**9))[: len(first)] == first
