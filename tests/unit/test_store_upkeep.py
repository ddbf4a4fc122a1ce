"""Upkeep of a store: it stays small, and reports its size."""

import asyncio
from pathlib import Path

import apsw

from bot.chat import upkeep
from conversation_store import deletion, outbox, schema
from conversation_store.connections import Row, Session, Value, add_indexed
from conversation_store.models import DAY_MS
from conversation_store.upkeep import DUPLICATES_KNOWN_DAYS, MIN_FREE_PAGES, NEXT_EXPIRY_SQL
from tests.unit.stores import (
    ADA,
    GROUP,
    accept,
    answer,
    now_ms,
    questions,
    received,
    rows,
    store_at,
)

PAGE_BYTES = 4096
OLD = 250


async def test_store_reports_its_size_and_waiting_work(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        empty = await store.upkeep.sizes()
        await answer(store, received(1, "x" * 100 * PAGE_BYTES))
        waits = await accept(store, received(2))
        await store.turns.answer(await accept(store, received(3)), ["a", "b"], outcome="command")
        full = await store.upkeep.sizes()
        await store.turns.clear(waits.message.chat)
        cleared = await store.upkeep.sizes()
    assert (empty.waiting_messages, empty.waiting_sends) == (0, 0)
    assert empty.free_bytes <= 4 * PAGE_BYTES  # of tables that the schema has replaced
    assert (full.waiting_messages, full.waiting_sends) == (1, 2)
    assert full.file_bytes >= empty.file_bytes + 100 * PAGE_BYTES
    assert full.log_bytes >= 100 * PAGE_BYTES
    assert cleared.log_bytes == 0
    assert cleared.file_bytes == full.file_bytes
    assert cleared.free_bytes >= 100 * PAGE_BYTES
    assert cleared.disk_free_bytes > 0


async def test_old_turns_go_in_small_steps_and_their_messages_stay_known_for_longer(
    tmp_path: Path,
) -> None:
    async with store_at(tmp_path) as store:
        accepted = await store.messages.accept([received(number) for number in range(OLD)])
        for one in accepted:
            assert one is not None
            store.turns.begin([one], "question")
            await store.turns.answer(one, (), outcome="x")
        known_until = now_ms() + DUPLICATES_KNOWN_DAYS * DAY_MS
        purge = asyncio.create_task(store.upkeep.purge(known_until - DAY_MS))
        await accept(store, received(OLD))
        assert rows(tmp_path, "SELECT count(*) FROM turns") != [(0,)]
        assert await purge == OLD
        assert await store.messages.accept([received(1)]) == (None,)
        await store.upkeep.purge(known_until + DAY_MS)
    assert rows(tmp_path, "SELECT timestamp FROM inbox") == [(OLD,)]


async def test_empty_pages_of_a_large_file_are_given_back_to_the_disk(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(9, "x" * 1_000_000))
        await store.turns.clear(ADA)
        small = await store.upkeep.sizes()
        assert small.free_bytes > small.file_bytes / 2
        given_back, _ = await asyncio.gather(
            store.upkeep.give_back(), answer(store, received(8, "x" * 3_000_000))
        )
        assert given_back == 0
        await answer(store, received(1, "x" * 20_000_000))
        await answer(store, received(2, "kept", GROUP))
        await store.turns.clear(ADA)
        assert await store.upkeep.give_back() > 15_000_000
        assert await store.upkeep.give_back() == 0
        sizes = await store.upkeep.sizes()
        assert sizes.log_bytes < 10_000_000
        assert await questions(store, GROUP) == ["kept"]
    assert (tmp_path / "store.db").stat().st_size <= sizes.file_bytes < 5_000_000


async def test_fifth_of_a_large_file_stays_for_new_rows(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "x" * 30_000_000, GROUP))
        assert await store.upkeep.give_back() > 10_000_000
        assert (await store.upkeep.sizes()).free_bytes > MIN_FREE_PAGES * PAGE_BYTES
        assert await store.upkeep.give_back() == 0


async def test_hourly_upkeep_deletes_old_rows_and_shrinks_the_file(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "x" * 20_000_000))
        async with asyncio.TaskGroup() as tasks:
            later = now_ms() / 1_000 + 100 * 86_400
            tending = tasks.create_task(upkeep.tend(store.upkeep, lambda: later))
            while (await store.upkeep.sizes()).file_bytes > 5_000_000:
                await store.upkeep.ping()
            tending.cancel()
        assert await questions(store) == []


class RecordingSession(Session):
    """Keeps the statements that it runs."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__(connection)
        self.statements: dict[str, int] = {}

    def run(self, sql: str, *values: Value) -> list[Row]:
        self.statements[sql] = len(values)
        return super().run(sql, *values)


def test_deletion_and_expiry_find_their_rows_by_indexes() -> None:
    connection = apsw.Connection(":memory:")
    add_indexed(connection)
    db = RecordingSession(connection)
    schema.migrate(db)
    db.statements.clear()
    deletion.forget(db, [1], [2])
    deletion.end(db, 1)
    outbox.expire(db, 1)
    db.run(NEXT_EXPIRY_SQL, 1)
    large = {"audit", "inbox", "messages", "outbox", "turns"}
    scanned = {
        (words[1], sql)
        for sql, values in db.statements.items()
        for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * values)
        if (words := step.split())[0] == "SCAN" and words[1] in large and "USING" not in words
    }
    connection.close()
    assert not scanned
