"""Counts of tokens in the store: by day, person, chat and model, and gone after a month."""

from pathlib import Path

from conversation_store.models import ChatId, Message, Role, TokenSpend, TokenSum
from conversation_store.store import open_store
from tests.unit.stores import CALL, begin, finish, forget, received, store_at

ADA, BEN = "ada", "ben"
CHAT = ChatId("direct:11111111-1111-4111-8111-111111111111")
DAY_SECONDS = 86_400


class Clock:
    def __init__(self) -> None:
        self.now = 20_000.0 * DAY_SECONDS

    def __call__(self) -> float:
        return self.now


async def test_a_day_begins_at_nothing_and_a_month_later_it_is_gone(tmp_path: Path) -> None:
    clock = Clock()
    async with open_store(tmp_path / "store.db", clock=clock) as store:
        store.usage.add([TokenSpend(ADA, CHAT, "default", 10, 5)])
        store.usage.add([TokenSpend(ADA, CHAT, "default", 1, 1, is_estimated=True)] * 2)
        store.usage.add([TokenSpend(BEN, CHAT, "second", 100, 0)])
        await store.upkeep.ping()  # returns after the queued writes
        assert await store.usage.spent_today(ADA) == 19
        assert await store.usage.of_person(ADA, 1) == {
            "default": TokenSum(12, 7, is_estimated=True)
        }
        assert await store.usage.of_all(1) == (TokenSum(112, 7, is_estimated=True), 2)
        clock.now += DAY_SECONDS
        assert await store.usage.spent_today(ADA) == 0
        assert await store.usage.of_person(ADA, 1) == {}
        assert await store.usage.of_person(ADA, 30) == {
            "default": TokenSum(12, 7, is_estimated=True)
        }
        await store.upkeep.purge()
        assert (await store.usage.of_all(40))[1] == 2
        clock.now += 30 * DAY_SECONDS
        await store.upkeep.purge()
        assert await store.usage.of_all(40) == (TokenSum(0, 0), 0)


async def test_usage_is_stored_with_its_turn_and_outlives_it(tmp_path: Path) -> None:
    asked = Message(Role.ASSISTANT, None, (CALL,))
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1))
        first = TokenSpend(ADA, CHAT, "default", 10, 5)
        await store.turns.record_calls(turn.id, asked, spent=[first])
        await finish(store, turn, spent=[TokenSpend(ADA, CHAT, "second", 1, 1)])
        assert await store.usage.spent_today(ADA) == 17
        assert await store.turns.clear(received(1).chat) == 1
    async with store_at(tmp_path) as store:
        assert await store.usage.spent_today(ADA) == 17
        turn = await begin(store, received(2))
        await forget(store, 2, 3)
        await store.turns.record_calls(
            turn.id, asked, spent=[TokenSpend(ADA, CHAT, "default", 1, 1)]
        )
        assert await finish(store, turn, spent=[TokenSpend(ADA, CHAT, "default", 2, 2)]) == ()
        assert await store.usage.spent_today(ADA) == 23
