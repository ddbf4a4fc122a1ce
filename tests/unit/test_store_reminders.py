"""Reminders in the store: added once, corrected after a wrong clock, and dropped by a restore."""

from pathlib import Path

from conversation_store import backup
from conversation_store.models import NewReminder, StoredReminder, StoredTurn
from conversation_store.store import ConversationStore
from tests.unit.stores import ADA, begin, now_ms, received, rows, store_at

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def add(
    store: ConversationStore, turn: StoredTurn, call: str, due_at: int, local_at: str | None = None
) -> StoredReminder:
    new = NewReminder(False, "Call mum", local_at, None, due_at)
    added = await store.reminders.add("ada", ADA, new, turn=turn.id, call=call, at_most=3)
    assert added is not None
    return added


async def test_a_call_that_runs_again_after_a_crash_adds_nothing(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1))
        first = await add(store, turn, "call_0", now_ms() + HOUR_MS)
        assert await add(store, turn, "call_0", now_ms() + 2 * HOUR_MS) == first
        other = await add(store, turn, "call_1", now_ms() + HOUR_MS)
        assert (first.number, other.number) == (1, 2)
        await store.reminders.cancel("ada", ADA, 2)
        third = await add(store, turn, "call_2", now_ms() + HOUR_MS)
        assert third.number == 3, "A number that is free again may be meant for what had it before"
        await store.changes.stop([turn.id])
        new = NewReminder(False, "Call mum", None, None, now_ms())
        late = await store.reminders.add("ada", ADA, new, turn=turn.id, call="late", at_most=9)
        assert late is None


async def test_restored_copy_repeats_no_reminder(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        turn = await begin(store, received(1))
        await add(store, turn, "past", now_ms() - HOUR_MS)
        await add(store, turn, "to come", now_ms() + DAY_MS)
        backup.backup(tmp_path / "store.db", None, tmp_path / "copy.db")
    backup.restore(tmp_path / "store.db", None, tmp_path / "copy.db")
    assert rows(tmp_path, "SELECT call_id FROM reminders WHERE state = 'waiting'") == [("to come",)]
    assert rows(tmp_path, "SELECT text FROM reminders WHERE state = 'done'") == [(None,)]
