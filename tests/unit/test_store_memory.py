"""Facts in the store: owners, sources and deletion."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conversation_store import memory
from conversation_store.full_text import best
from conversation_store.models import AcceptedMessage, ChatId, Fact, NotRemembered, StoredTurn
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    ADA,
    accept,
    begin,
    finish,
    forget,
    is_left,
    mark,
    now_ms,
    received,
    rows,
    store_at,
)

HOUR_MS = 3_600_000
FAR = 4_000_000_000_000


async def remember(
    store: ConversationStore, text: str, at: int, chat: ChatId = ADA, *, said: str = "", **more: Any
) -> AcceptedMessage:
    """Remember something in a turn that answers a message, which says it unless told otherwise."""
    accepted = await accept(store, received(at, said or text, chat, **more))
    turn = store.turns.begin([accepted], said or text)
    await keep(store, turn, text, "call_0", chat)
    await finish(store, turn)
    return accepted


async def keep(
    store: ConversationStore, turn: StoredTurn, text: str, call: str, chat: ChatId = ADA
) -> int:
    kept = await store.memory.remember(chat, text, turn_id=turn.id, call=call)
    assert isinstance(kept, Fact), kept
    return kept.number


async def recall(
    store: ConversationStore, query: str, at: int, chat: ChatId = ADA
) -> tuple[Fact, ...] | NotRemembered:
    """Look for facts in a turn that answers a message."""
    turn = await begin(store, received(at, "what?", chat), "what?")
    found = await store.memory.recall(chat, query, 10, turn_id=turn.id)
    said = "nothing" if isinstance(found, str) else str(texts(found))
    await mark(store, await finish(store, turn, [said]), 1_000 * at)
    return found


def texts(facts: Sequence[Fact] | NotRemembered) -> list[str]:
    assert not isinstance(facts, str)
    return [fact.text for fact in facts]


async def known(store: ConversationStore, chat: ChatId = ADA) -> list[str]:
    return texts(await store.memory.of_chat(chat))


async def test_repeated_fact_keeps_its_number_and_comes_from_the_latest_message(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await remember(store, "Ada sings", 1)
        await remember(store, "ada SINGS", 2)
        assert [(one.number, one.text) for one in await store.memory.of_chat(ADA)] == [
            (1, "ada SINGS")
        ]
        await forget(store, 1, 3)
        assert await known(store) == ["ada SINGS"]
        await forget(store, 2, 4)
        assert await known(store) == []


async def test_retention_takes_facts_and_a_store_that_keeps_nothing_remembers_nothing(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        await remember(store, "the code is zebra", 1)
        await recall(store, "code", 2)
        await store.upkeep.purge(now_ms() + 29 * 24 * HOUR_MS)
        assert await known(store) == ["the code is zebra"]
        await store.upkeep.purge(FAR)
        assert await known(store) == []
        assert not rows(tmp_path, "SELECT * FROM memories")
    assert not is_left(tmp_path, "zebra")
    async with store_at(tmp_path, retention_days=0) as store:
        turn = await begin(store, received(5), "x")
        kept = await store.memory.remember(ADA, "x", turn_id=turn.id, call="a")
        assert kept == "kept_nowhere"


async def test_a_chat_has_a_bounded_number_of_facts_and_shows_the_newest_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MAX_FACTS", 30)
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1))
        for n in range(1, 31):
            text = f"fact {n} " + "é" * (200 if n == 30 else 10)
            assert await keep(store, turn, text, f"{n}") == n
        more = await store.memory.remember(ADA, "fact 31", turn_id=turn.id, call="31")
        assert more == "full"
        shown = await store.memory.noted(ADA)
        assert [fact.number for fact in shown.facts] == list(range(10, 30))
        assert shown.more_facts == 10
        await store.memory.switch(ADA, on=False)
        assert (await store.memory.noted(ADA)).facts == ()
        assert await recall(store, "fact", 2) == "off"
        assert len(await known(store)) == 30


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("garden", [1]), ("GÄRTEN", [2]), ("gart", [2]), ("schlussel", [3]), ("東京", [4]),
        ("京", [4]), ("どこに住んで", [4]), ("müsli joghurt", [5, 6]), ("musli", [5]),
        ('"', []), ("NEAR(", []), ("text:x OR *", []), ("-garden", [1]), ("garden* AND x", [1]),
        ("zebra", []), ("", []), ("\0\ud800", []), ("ключ", [7]), ("sleuthel", []), ("مفتاح", [8]),
    ],
)  # fmt: skip
def test_words_are_found_best_first_whatever_their_form(query: str, found: list[int]) -> None:
    facts = [
        "nothing of it", "Ada likes gardening", "Gärten in Köln", "Der Haustürschlüssel hängt",
        "東京に住んでいます", "Müsli mit Joghurt, Müsli", "Joghurt", "Ключи лежат дома",
        "مفتاح البيت تحت السجادة",
    ]  # fmt: skip
    assert best(facts, query, 10) == found


def test_a_search_is_bounded_and_takes_any_text() -> None:
    assert best(["a b c"] * 500, "a " * 100_000, 7) == [499, 498, 497, 496, 495, 494, 493]
