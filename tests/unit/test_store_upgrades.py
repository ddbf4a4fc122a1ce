"""Upgrades of a store to an invented version, and stores that are refused."""

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

from conversation_store.backup import backup, encrypt, restore, upgrade_is_due
from conversation_store.connections import Session, StoreUnreadable, add_indexed
from conversation_store.outgoing import Outgoing
from conversation_store.pairings import open_pairing_book
from conversation_store.schema import APPLICATION_ID, MIGRATIONS
from conversation_store.store import open_store
from tests.unit.stores import ADA, accept, now_ms, received, rows, store_at, waiting

HEADER_BYTES = 100
"""SQLite counts in the header how often the file was opened for writing."""


def add_moods(db: Session) -> None:
    db.run("ALTER TABLE inbox ADD COLUMN mood TEXT")
    db.run("UPDATE inbox SET mood = 'good ' || json_extract(body, '$.text')")


def fail(db: Session) -> None:
    db.run("ALTER TABLE inbox ADD COLUMN mood TEXT")
    db.run("SELECT * FROM no_such_table")


NEXT = (*MIGRATIONS, add_moods)


async def make(folder: Path) -> None:
    """Make a store of this version, with a message that waits."""
    async with store_at(folder) as store:
        await accept(store, received(1, "sesame"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "store.db.lock")


async def make_earlier(folder: Path, version: int, rows_of_turn: str) -> None:
    """Make a store of an earlier version, with an answered turn.

    Args:
        rows_of_turn: SQL for its rows in other tables; the turn is 1.
    """
    async with open_store(folder / "store.db", migrations=MIGRATIONS[:version]) as store:
        await store.set_metadata("version", str(version))
    with closing(apsw.Connection(str(folder / "store.db"))) as old:
        add_indexed(old)
        old.execute(
            "INSERT INTO inbox (id, account, author, timestamp, kind, chat, received_at, state)"
            " VALUES (1, 'a', 'ada', 1, 'message', 'direct:ada', 1, 'done');"
            "INSERT INTO turns (id, chat, state, attempts, started_at)"
            f" VALUES (1, 'direct:ada', 'answered', 1, 1); {rows_of_turn}"
        )


async def test_messages_from_before_the_search_are_found(tmp_path: Path) -> None:
    messages = """
        INSERT INTO messages (turn_id, role, content, created_at) VALUES
        (1, 'user', '[2026-11-27 10:00 UTC] Where is the tent?', 1),
        (1, 'assistant', 'The tent is here.', 2)
    """
    await make_earlier(tmp_path, 1, messages)
    async with store_at(tmp_path) as store:
        reader = await accept(store, received(9))
        found = await store.search.find(ADA, "tent", 9, reader=reader.id, since=0, until=now_ms())
    assert [one.text for one in found] == ["The tent is here.", "Where is the tent?"]


async def test_words_from_before_the_later_index_are_found_until_they_are_deleted(
    tmp_path: Path,
) -> None:
    said = """
        INSERT INTO said (turn_id, chat, by_bot, text, sent_at)
        VALUES (1, 'direct:ada', 0, 'Where is the tent?', 1)
    """
    await make_earlier(tmp_path, 2, said)
    async with store_at(tmp_path) as store:
        reader = await accept(store, received(9))
        times = {"since": 0, "until": now_ms()}
        found = await store.search.find(ADA, "tent", 5, reader=reader.id, **times)
        await store.turns.clear(ADA)
        gone = await store.search.find(ADA, "tent", 5, reader=reader.id, **times)
    assert [one.text for one in found] == ["Where is the tent?"]
    assert gone == ()
    assert rows(tmp_path, "SELECT * FROM said_words_docsize") == []


async def test_a_list_of_outgoing_data_goes_on_after_an_upgrade_in_its_order(
    tmp_path: Path,
) -> None:
    outgoing = """
        INSERT INTO outgoing (id, turn_id, kind, target, detail, is_proven, requests, bytes) VALUES
        (7, 1, 'model', 'second', '', 1, 2, 30), (6, 1, 'web', 'first', '', 0, 1, 9)
    """
    await make_earlier(tmp_path, 2, outgoing)
    async with store_at(tmp_path) as store:
        store.outgoing.note(1, Outgoing("model", "second", "", 1, 1, 12))
        store.outgoing.note(1, Outgoing("web", "a third", "", 0, 1, 5))
        await store.upkeep.ping()
        listed = await store.outgoing.of_turn(1)
    assert [(one.target, one.requests, one.bytes) for one in listed] == [
        ("first", 1, 9),
        ("second", 3, 42),
        ("a third", 1, 5),
    ]


async def test_upgrade_keeps_all_rows(tmp_path: Path) -> None:
    await make(tmp_path)
    assert upgrade_is_due(tmp_path / "store.db", None, NEXT)
    assert not upgrade_is_due(tmp_path / "store.db", None)
    async with open_store(tmp_path / "store.db", migrations=NEXT) as store:
        assert await waiting(store) == [1]
    assert rows(tmp_path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert rows(tmp_path, "SELECT mood FROM inbox") == [("good sesame",)]
    assert rows(tmp_path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]
    for words in ("update the bot", "no database"):
        with pytest.raises(StoreUnreadable, match=words):
            async with store_at(tmp_path):
                pass
        (tmp_path / "store.db").write_bytes(b"no database" * 1000)


async def test_failed_upgrade_changes_nothing(tmp_path: Path) -> None:
    await make(tmp_path)
    was = (tmp_path / "store.db").read_bytes()[HEADER_BYTES:]
    with pytest.raises(apsw.SQLError):
        async with open_store(tmp_path / "store.db", migrations=(*MIGRATIONS, fail)):
            pass
    assert names(tmp_path) == ["store.db"]
    assert (tmp_path / "store.db").read_bytes()[HEADER_BYTES:] == was


@pytest.mark.parametrize("version", [1, 25])
async def test_store_of_an_unreleased_build_is_refused_in_one_sentence(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE inbox (id INTEGER PRIMARY KEY)")
        old.execute(f"PRAGMA user_version = {version}")
    was = path.read_bytes()
    with pytest.raises(StoreUnreadable, match="from a build before the first release"):
        async with store_at(tmp_path):
            pass
    with (
        pytest.raises(StoreUnreadable, match="from a build before the first release"),
        open_pairing_book(path, None),
    ):
        pass
    for copying in (
        partial(backup, path, None, tmp_path / "copy.db"),
        partial(encrypt, path, None, "key"),
        partial(restore, tmp_path / "other.db", None, path),
    ):
        with pytest.raises(StoreUnreadable, match="from a build before the first release"):
            copying()
    assert path.read_bytes() == was
    assert not (tmp_path / "copy.db").exists()
