"""Words that are dropped leave the store's files within a second, its write-ahead log included.

Nothing else empties the log here: no timer runs and nobody asks what has expired.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from conversation_store import connections, database
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    TEN_MINUTES_MS,
    accept,
    answer,
    call,
    edit_of,
    finish,
    is_left,
    mark,
    now_ms,
    received,
    store_at,
)

MOMENT_SECONDS = 1.0
SECRET = "the safe opens with 4711"
ANSWER = "4711 is what I was told"


async def leaves(folder: Path, words: str) -> None:
    """Wait until no byte of the files says these words, at most a moment."""
    async with asyncio.timeout(MOMENT_SECONDS):
        while is_left(folder, words):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


async def test_edit_removes_old_words_of_a_waiting_message(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        waits = await accept(store, received(1, SECRET))
        store.turns.begin([waits], SECRET)
        edit = await accept(store, edit_of(1, 2, "hello"))
        assert is_left(tmp_path, SECRET)
        await store.changes.merge_edit(edit, waits)
        await leaves(tmp_path, SECRET)


async def test_edit_removes_old_words_of_an_answered_message(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, SECRET))
        edit = await accept(store, edit_of(1, 2, "hello"))
        settled, _ = await store.changes.settle_edit(edit, answered_within_ms=TEN_MINUTES_MS)
        assert settled == "answered"
        await leaves(tmp_path, SECRET)


async def test_an_edit_that_comes_too_late_leaves_none_of_its_words(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "hello"))
        edit = await accept(store, edit_of(1, 2, SECRET))
        settled, _ = await store.changes.settle_edit(edit, answered_within_ms=-1)
        assert settled == "too_late"
        await leaves(tmp_path, SECRET)


async def test_a_turn_that_is_begun_afresh_leaves_nothing_of_its_old_words(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        waits = await accept(store, received(1, "hello"))
        turn = store.turns.begin([waits], SECRET)
        await call(store, turn, SECRET)
        await store.turns.restart(turn.id)
        await leaves(tmp_path, SECRET)


async def answered(store: ConversationStore, expires_at: int | None = None) -> None:
    accepted = await accept(store, received(1, SECRET, expires_at=expires_at))
    turn = store.turns.begin([accepted], SECRET)
    await call(store, turn, SECRET)
    await mark(store, await finish(store, turn, [ANSWER]), 9_000)


async def told(store: ConversationStore, expires_at: int | None = None) -> None:
    """Answer as commands do."""
    accepted = await accept(store, received(1, SECRET, expires_at=expires_at))
    await mark(store, await store.turns.answer(accepted, (ANSWER,), outcome="command"), 9_000)


async def stopped(store: ConversationStore, expires_at: int | None = None) -> None:
    accepted = await accept(store, received(1, SECRET, expires_at=expires_at))
    turn = store.turns.begin([accepted], SECRET)
    await call(store, turn, ANSWER)
    await store.changes.stop([accepted.id])


@pytest.mark.parametrize("how", [answered, told, stopped])
async def test_with_a_retention_of_zero_a_turn_leaves_none_of_its_words(
    tmp_path: Path, how: Callable[[ConversationStore], Awaitable[None]]
) -> None:
    async with store_at(tmp_path, retention_days=0) as store:
        await how(store)
        await leaves(tmp_path, SECRET)
        await leaves(tmp_path, ANSWER)


@pytest.mark.parametrize("how", [answered, told, stopped])
async def test_message_that_disappeared_during_its_turn_leaves_no_words(
    tmp_path: Path, how: Callable[..., Awaitable[None]]
) -> None:
    async with store_at(tmp_path) as store:
        await how(store, expires_at=now_ms())
        await leaves(tmp_path, SECRET)
        await leaves(tmp_path, ANSWER)


async def test_deleted_words_go_after_a_read_that_held_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "SCRUB_AGAIN_SECONDS", 0.1)
    async with store_at(tmp_path, retention_days=0) as store:
        await accept(store, received(2, "hello"))
        backup = apsw.Connection(str(tmp_path / "store.db"))
        backup.execute("BEGIN")
        backup.execute("SELECT count(*) FROM inbox").fetchall()
        await answered(store)
        assert is_left(tmp_path, SECRET)
        backup.close()
        await leaves(tmp_path, SECRET)


async def test_many_wishes_to_empty_the_log_are_few_times_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied: list[bool] = []
    empty_log = connections.empty_log

    def counted(connection: object) -> bool:
        emptied.append(empty_log(connection))
        return emptied[-1]

    monkeypatch.setattr(connections, "empty_log", counted)
    async with store_at(tmp_path, retention_days=0) as store:
        began = time.monotonic()
        for number in range(1, 31):
            accepted = await accept(store, received(number, SECRET))
            turn = store.turns.begin([accepted], SECRET)
            await mark(store, await finish(store, turn, [ANSWER]), 9_000 + number)
        await leaves(tmp_path, SECRET)
        seconds = time.monotonic() - began
    assert 1 <= len(emptied) <= 2 + seconds / database.SCRUB_EVERY_SECONDS
