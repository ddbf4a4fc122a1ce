"""A search among 100,000 messages is quick."""

import random
import time
from pathlib import Path
from typing import Final

import pytest

from conversation_store.connections import Session
from conversation_store.store import open_store
from tests.unit.stores import ADA, accept, begin, finish, received

MESSAGES: Final = 100_000
WORDS_EACH: Final = 8
BOUND_SECONDS: Final = 0.05
RUNS: Final = 5


@pytest.mark.full
@pytest.mark.long
async def test_a_search_among_100_000_messages_takes_less_than_50_ms(tmp_path: Path) -> None:
    dice = random.Random(1)
    vocabulary = [f"{dice.randrange(16**6):x}" for _ in range(20_000)]
    weights = [1 / (place + 1) for place in range(len(vocabulary))]  # Zipf's law

    async with open_store(tmp_path / "store.db", key="k") as store:
        turn = await begin(store, received(1))
        await finish(store, turn)

        def fill(db: Session) -> None:
            for at in range(MESSAGES):
                words = " ".join(dice.choices(vocabulary, weights, k=WORDS_EACH))
                db.insert("said", turn_id=turn.id, chat=ADA, by_bot=0, text=words, sent_at=at)

        await store._database.write(fill)
        reader = await accept(store, received(2))
        for query in (vocabulary[0], " ".join(vocabulary[1:4]), vocabulary[-1], vocabulary[99][:4]):
            taken = []
            for _ in range(RUNS):
                began = time.monotonic()
                found = await store.search.find(
                    ADA, query, 10, reader=reader.id, since=0, until=MESSAGES
                )
                taken.append(time.monotonic() - began)
                assert found
            assert min(taken) < BOUND_SECONDS, query
