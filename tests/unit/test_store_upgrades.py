"""Stores of every earlier schema are brought up to date with what they hold."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from conversation_store.migrations import m0001_initial, m0002_approvals, m0003_proofs
from conversation_store.models import EditOutcome, ReceivedQuote
from tests.unit.stores import ADA, TEN_MINUTES_MS, accept, edit_of, now_ms, questions, store_at

HELD = """
    INSERT INTO inbox
      (id, account, author, timestamp, kind, chat, body, received_at, state, outcome)
    VALUES
      (1, '+4915100000000', 'ada', 1, 'message', 'direct:ada', NULL, 1, 'done', 'answered'),
      (2, '+4915100000000', 'ada', 2, 'message', 'direct:ada', NULL, 1, 'done', 'answered'),
      (3, '+4915100000000', 'ada', 3, 'message', 'direct:ada',
       '{"text": "hi", "author_number": null, "author_name": "Ada", "attachments": 0,
         "quote_timestamp": 77}', 5, 'waiting', NULL);
    INSERT INTO turns (id, chat, state, attempts, started_at) VALUES
      (1, 'direct:ada', 'answered', 1, 1), (3, 'direct:ada', 'running', 1, 1);
    INSERT INTO messages (turn_id, role, content, created_at) VALUES
      (1, 'user', 'question', 1), (1, 'assistant', 'answer', 1), (3, 'user', 'hi', 1);
    INSERT INTO outbox (id, inbox_id, part, chat, text, state, created_at, signal_timestamp) VALUES
      (1, 1, 0, 'direct:ada', NULL, 'sent', :now, 100),
      (2, 2, 0, 'direct:ada', 'words', 'waiting', :now, NULL);
    INSERT INTO audit (at, chat, author, turn_id, tool, arguments_sha256, outcome, duration_ms)
    VALUES (1, 'direct:ada', 'ada', 1, 'calculate', '00', 'ok', 3);
"""
FILE = "INSERT INTO attachments (outbox_id, name, content_type, data) VALUES (2, 'f', 'x/y', x'00')"


def make(folder: Path, migrations: Sequence[ModuleType]) -> None:
    with closing(sqlite3.connect(folder / "store.db")) as database:
        for migration in migrations:
            for statement in migration.STATEMENTS:
                database.execute(statement)
        database.executescript(HELD.replace(":now", str(now_ms())))
        if m0003_proofs in migrations:
            database.execute(FILE)
        database.execute(f"PRAGMA user_version = {len(migrations)}")
        database.commit()


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_store_is_brought_up_to_date_with_what_it_holds(
    tmp_path: Path, version: int
) -> None:
    make(tmp_path, [m0001_initial, m0002_approvals, m0003_proofs][:version])
    async with store_at(tmp_path) as store:
        work = await store.messages.unfinished()
        (waits,) = work.accepted
        assert (waits.id, waits.message.text, waits.begun) == (3, "hi", True)
        assert waits.message.quote == ReceivedQuote(77, None, by_bot=True)
        (part,) = work.outgoing
        assert (part.id, part.text) == (2, "words")
        assert [file.name for file in part.attachments] == ["f"] * (version == 3)
        await store.outbox.mark_sent(part, 200)
        assert await questions(store, ADA) == ["question"]
        resumed = await store.turns.resume(waits)
        assert resumed is not None
        assert resumed.attempts == 2
        edit = await accept(store, edit_of(1, 4, "edited"))
        outcome, edit = await store.messages.settle_edit(edit, answered_within_ms=TEN_MINUTES_MS)
        assert (outcome, edit.replaces) == (EditOutcome.ANSWERED, 1)
        parts = await store.turns.answer(edit, ["new"], outcome="command")
        assert [part.replaces for part in parts] == [100]
    async with store_at(tmp_path) as store:
        assert (await store.messages.unfinished()).outgoing == parts
