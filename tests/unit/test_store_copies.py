"""Copies of a store: made during writes, restored, and left by an upgrade."""

import asyncio
import shutil
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from conversation_store.backup import backup, restore
from conversation_store.connections import StoreError, StoreFailed, StoreLocked, StoreUnreadable
from conversation_store.models import ChatId, Message, NewExchange, Role
from conversation_store.pairings import PairingRequest
from conversation_store.store import open_store
from tests.unit.stores import (
    ADA,
    CALL,
    GROUP,
    MAY_RUN,
    accept,
    answer,
    deletion_of,
    finish,
    mark,
    now_ms,
    questions,
    received,
    store_at,
    waiting,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "store.db.lock")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_copy_is_taken_while_the_bot_writes_and_holds_no_deleted_content(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with open_store(path, key="k") as store:
        await answer(store, received(1, "x" * 1_000_000))
        await store.turns.clear(ADA)
        await answer(store, received(2, "kept"))
        await asyncio.gather(
            asyncio.to_thread(backup, path, "k", copy),
            *(accept(store, received(number)) for number in range(3, 50)),
        )
        assert (await store.upkeep.sizes()).file_bytes > 1_000_000
        with pytest.raises(StoreFailed, match="exists already"):
            backup(path, "k", copy)
    assert copy.stat().st_size < 500_000
    assert mode(copy) == 0o600
    assert b"kept" not in copy.read_bytes()
    async with open_store(copy, key="k") as store:
        assert await questions(store) == ["kept"]


async def test_a_copy_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    async with store_at(tmp_path):
        pass
    path = tmp_path / "store.db"
    for target, key, words in (
        (tmp_path / "missing" / "copy.db", None, "No such file or directory"),
        (path / "copy.db", None, "Not a directory"),
        (tmp_path / "copy.db", "no key of its", "the key does not fit"),
    ):
        with pytest.raises(StoreError, match=words):
            backup(path, key, target)
    assert names(tmp_path) == ["store.db"]


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with open_store(folder / "store.db") as store:
        await accept(store, received(1))
        assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert mode(folder) == 0o700


async def test_restored_copy_keeps_the_replaced_store_next_to_it(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with open_store(path, key="k") as store:
        await answer(store, received(1, "before the copy"))
        backup(path, "k", copy)
        await answer(store, received(2, "after the copy"))
    restored = restore(path, "k", copy)
    assert (restored.messages, restored.sends) == (0, 0)
    async with open_store(path, key="k") as store:
        assert await questions(store) == ["before the copy"]
    assert restored.aside is not None
    assert restored.aside.name.startswith("store.db.replaced-20")
    async with open_store(restored.aside, key="k") as store:
        assert await questions(store) == ["before the copy", "after the copy"]
    assert [mode(one) for one in (path, restored.aside)] == [0o600] * 2
    asides = {restored.aside, *(restore(path, "k", copy).aside for _ in range(2))}
    assert len(asides) == 3
    assert all(aside is not None and aside.is_file() for aside in asides)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE TRIGGER kept AFTER DELETE ON inbox BEGIN UPDATE metadata SET value = old.body; END",
        "CREATE VIEW facts_too AS SELECT * FROM facts",
        "CREATE VIRTUAL TABLE words USING fts5(body)",
    ],
    ids=["a trigger", "a view", "a virtual table"],
)
async def test_copy_with_triggers_is_not_restored(tmp_path: Path, made: str) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept"))
        backup(path, None, copy)
    with closing(apsw.Connection(str(copy))) as database:
        database.execute(made)
    with pytest.raises(StoreUnreadable, match="the file is no store of this program"):
        restore(path, None, copy)
    async with store_at(tmp_path) as store:
        assert await questions(store) == ["kept"]


async def test_a_copy_is_restored_where_there_is_no_store(tmp_path: Path) -> None:
    of_another = tmp_path / "new" / "another.db.next-replaced"
    of_another.parent.mkdir()
    of_another.touch()
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "kept"))
        backup(tmp_path / "store.db", None, tmp_path / "copy.db")
    new = tmp_path / "new" / "store.db"
    assert restore(new, None, tmp_path / "copy.db").aside is None
    async with open_store(new) as store:
        assert await questions(store) == ["kept"]
    assert names(new.parent) == [of_another.name, "store.db"]


async def test_the_log_of_a_store_that_was_killed_is_restored_with_it_and_kept_with_it(
    tmp_path: Path,
) -> None:
    killed, here = tmp_path / "killed", tmp_path / "here"
    for folder in (killed, here):
        folder.mkdir()
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "in the log"))
        for ending in ("", "-wal"):
            shutil.copy(tmp_path / f"store.db{ending}", killed / f"store.db{ending}")
            shutil.copy(tmp_path / f"store.db{ending}", here / f"store.db{ending}")
    before = contents(killed)
    restored = restore(here / "store.db", None, killed / "store.db")
    async with store_at(here) as store:
        assert await questions(store) == ["in the log"]
    assert contents(killed) == before
    assert restored.aside is not None
    async with open_store(restored.aside) as store:
        assert await questions(store) == ["in the log"]


async def test_messages_owed_at_the_time_of_a_copy_are_closed(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with store_at(tmp_path) as store:
        unsent = await accept(store, received(1, "a", GROUP))
        await store.turns.answer(unsent, ["one", "two"], outcome="command")
        running = await accept(store, received(2, "runs"))
        turn = store.turns.begin([running], "runs")
        exchanged = [NewExchange("c", "00", "00")]
        await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)), exchanged)
        question = await store.questions.find_or_open(turn.id, CALL.id, MAY_RUN)
        assert question is not None
        await store.questions.mark_asked(
            replace(question, timestamps=(77,), expires_at=now_ms() + 1_000_000)
        )
        await accept(store, received(3, "waits", GROUP))
        answered = store.turns.begin([await accept(store, received(4, "done"))], "done")
        await store.turns.record_calls(
            answered.id, Message(Role.ASSISTANT, None, (CALL,)), exchanged
        )
        await mark(store, await finish(store, answered, ("a",)), 9_000)
        assert len(await store.exchanges.unchecked(10)) == 1
        request = PairingRequest("ben", "CODE", now_ms() + 1_000_000)
        await store.pairings.ask(
            request, chat=ChatId.parse("direct:ben"), text="t", at_most=9, now_ms=now_ms()
        )
        await store.pairings.approve("CODE", now_ms())
        backup(path, None, copy)
        owed, to_send = await store.messages.unfinished(), await store.outbox.unfinished()
    assert [one.message.text for one in owed] == ["runs", "waits"]
    restored = restore(path, None, copy)
    assert (restored.messages, restored.sends) == (2, len(to_send))
    async with store_at(tmp_path) as store:
        assert await store.outbox.unfinished() == ()
        assert await store.messages.unfinished() == ()
        assert await store.questions.open() == ()
        assert await store.exchanges.unchecked(10) == ()
        assert [person.greeted for person in await store.pairings.people()] == [True]
        assert (
            await store.messages.accept([received(2, "runs"), received(3, "waits", GROUP)])
            == (None,) * 2
        )
    assert not any(
        b"waits" in one.read_bytes() for one in (path, tmp_path / "store.db-wal") if one.exists()
    )


async def test_deletions_due_at_the_time_of_a_copy_are_carried_out(tmp_path: Path) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "secret words"))
        await accept(store, deletion_of(1, 2))
        backup(path, None, copy)
    restore(path, None, copy)
    async with store_at(tmp_path) as store:
        assert await questions(store) == []
        assert await waiting(store) == []
    assert b"secret words" not in path.read_bytes()


@pytest.mark.parametrize(
    ("source", "key", "words"),
    [
        ("missing.db", None, "there is no such copy"),
        (".", None, "there is no such copy"),
        ("store.db", None, "the copy is the store itself"),
        ("copy.db", "wrong", "the key does not fit"),
        ("text.db", None, "the key does not fit, or the file is no database"),
        ("empty.db", None, "no store of this program"),
        ("other.db", None, "not from this bot"),
        ("newer.db", None, "update the bot"),
        ("damaged.db", None, "damaged"),
    ],
)
async def test_bad_copy_changes_nothing(
    tmp_path: Path, source: str, key: str | None, words: str
) -> None:
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    async with store_at(tmp_path) as store:
        for number in range(50):
            await answer(store, received(number, f"{number} " + "x" * 5_000))
        backup(path, None, copy)
    (tmp_path / "text.db").write_text("no database at all, but long enough to be one" * 100)
    (tmp_path / "empty.db").touch()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    shutil.copy(copy, tmp_path / "newer.db")
    with closing(sqlite3.connect(tmp_path / "newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    damaged = bytearray(copy.read_bytes())
    damaged[20_000:40_000] = bytes(20_000)
    (tmp_path / "damaged.db").write_bytes(damaged)
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=words):
        restore(path, key, tmp_path / source)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("moved", [(), ("",), ("", "-wal")])
async def test_going_back_is_finished_by_the_next_start_wherever_it_was_interrupted(
    tmp_path: Path, moved: tuple[str, ...]
) -> None:
    made, here = tmp_path / "made", tmp_path / "here"
    for folder in (made, here):
        folder.mkdir()
    async with store_at(made) as store:
        await answer(store, received(1, "new"))
    async with store_at(tmp_path) as store:
        await answer(store, received(1, "old, in the log"))
        for ending in ("", "-wal"):
            name = "store.db" + (".aside" if ending in moved else "") + ending
            shutil.copy(tmp_path / f"store.db{ending}", here / name)
    shutil.copy(made / "store.db", here / "store.db.next-aside")
    (here / "store.db.draft").write_text("of a try before")
    async with store_at(here) as store:
        assert await questions(store) == ["new"]
    assert names(here) == ["store.db", "store.db.aside", "store.db.aside-wal"]
    async with open_store(here / "store.db.aside") as store:
        assert await questions(store) == ["old, in the log"]


async def test_going_back_is_not_finished_over_another_store(tmp_path: Path) -> None:
    async with store_at(tmp_path):
        pass
    (tmp_path / "store.db.aside").write_text("precious")
    shutil.copy(tmp_path / "store.db", tmp_path / "store.db.next-aside")
    with pytest.raises(StoreFailed, match=r"store\.db\.aside is in the way"):
        async with store_at(tmp_path):
            pass
    assert (tmp_path / "store.db.aside").read_text() == "precious"


async def test_a_store_has_one_writer_by_whatever_name_it_goes(tmp_path: Path) -> None:
    real, link = tmp_path / "disk" / "store.db", tmp_path / "store.db"
    link.symlink_to(real)
    async with open_store(real) as store:
        await answer(store, received(1, "kept"))
        backup(link, None, tmp_path / "copy.db")
        with pytest.raises(StoreLocked):
            restore(link, None, tmp_path / "copy.db")
        with pytest.raises(StoreLocked):
            async with open_store(link):
                pass
    async with open_store(link) as store:
        assert await questions(store) == ["kept"]
        assert (await store.upkeep.sizes()).log_bytes > 0
    aside = restore(link, None, tmp_path / "copy.db").aside
    assert aside is not None
    assert aside.parent == real.parent
    assert link.is_symlink()
