"""Words that are dropped leave the store's files within a second, its write-ahead log included.

Nothing else empties the log here: no timer runs, and `expire` is not called.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from conversation_store import database
from conversation_store.store import ConversationStore
from tests.unit.stores import (
    accept,
    answer,
    begin,
    call,
    edit_of,
    finish,
    is_left,
    mark,
    now_ms,
    received,
    settle,
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


async def edit_waiting(store: ConversationStore) -> None:
    waits = await accept(store, received(1, SECRET))
    store.turns.begin([waits], SECRET)
    await store.changes.merge_edit(await accept(store, edit_of(1, 2, "hello")), waits)


async def edit_answered(store: ConversationStore) -> None:
    await answer(store, received(1, SECRET))
    assert (await settle(store, edit_of(1, 2, "hello")))[0] == "answered"


async def edit_too_late(store: ConversationStore) -> None:
    await answer(store, received(1, "hello"))
    assert (await settle(store, edit_of(1, 2, SECRET), within_ms=-1))[0] == "too_late"


async def begin_afresh(store: ConversationStore) -> None:
    turn = await begin(store, received(1, "hello"), SECRET)
    await call(store, turn, SECRET)
    await store.turns.restart(turn.id)


@pytest.mark.parametrize("change", [edit_waiting, edit_answered, edit_too_late, begin_afresh])
async def test_changed_words_leave_the_files(
    tmp_path: Path, change: Callable[[ConversationStore], Awaitable[None]]
) -> None:
    async with store_at(tmp_path) as store:
        await change(store)
        await leaves(tmp_path, SECRET)


async def end_turn(store: ConversationStore, how: str, expires_at: int | None = None) -> None:
    accepted = await accept(store, received(1, SECRET, expires_at=expires_at))
    if how == "command":
        await mark(store, await store.turns.answer(accepted, (ANSWER,), outcome="command"), 9_000)
        return
    turn = store.turns.begin([accepted], SECRET)
    await call(store, turn, ANSWER)
    if how == "stopped":
        await store.changes.stop([accepted.id])
    else:
        await mark(store, await finish(store, turn, [ANSWER]), 9_000)


@pytest.mark.parametrize("how", ["answered", "command", "stopped"])
@pytest.mark.parametrize("why", ["no retention", "it has disappeared"])
async def test_a_turn_that_is_not_kept_leaves_none_of_its_words(
    tmp_path: Path, how: str, why: str
) -> None:
    is_kept = why == "it has disappeared"
    async with store_at(tmp_path, retention_days=30 if is_kept else 0) as store:
        await end_turn(store, how, now_ms() if is_kept else None)
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
        await end_turn(store, "answered")
        assert is_left(tmp_path, SECRET)
        backup.close()
        await leaves(tmp_path, SECRET)
