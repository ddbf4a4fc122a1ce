"""Deletion of everything that was derived from a message.

A turn has the id of the message that it answers. Its history, files, facts, reminders, instructions
and unsent answers carry the id of the turn. If a turn has read more than its own messages, the
table `sources` lists that: messages of other people, and earlier turns whose facts, reminders or
answers it has read. `forget` follows these ids. It compares no words.
"""

import json
from collections.abc import Collection, Iterable
from typing import Final

from conversation_store import outbox
from conversation_store.connections import Session

OVERHEARD: Final = "overheard"
CATCH_UP: Final = "catch_up"
TURN: Final = "turn"
FACT: Final = "fact"
"""Kinds of sources: overheard words, words for catch-up, or something of an earlier turn (a fact,
a reminder, an answer that was quoted or got a reaction, a file in the inbox). A fact is both TURN
and FACT."""

DIRECT_SQL: Final = """
    WITH RECURSIVE gone (id) AS (
        SELECT value FROM json_each(?)
        UNION SELECT inbox.id FROM inbox JOIN gone ON inbox.retries = gone.id
        UNION SELECT sources.turn_id FROM sources JOIN gone ON source_id = gone.id
            JOIN inbox ON inbox.id = sources.turn_id WHERE via = 'turn' AND inbox.kind = 'scheduled'
    )
    SELECT id FROM gone
"""
"""Turns that exist only because of others: they answer the same question again, or a reminder of
theirs started them."""

READERS_SQL: Final = """
    WITH RECURSIVE gone (id) AS (
        SELECT value FROM json_each(?)
        UNION SELECT turn_id FROM sources JOIN gone ON source_id = gone.id WHERE via = 'turn'
    )
    SELECT gone.id, kind FROM gone JOIN inbox ON inbox.id = gone.id
"""

UNQUOTE_SQL: Final = """
    WITH gone (id) AS (SELECT value FROM json_each(?)), said (chat, at) AS (
        SELECT chat, signal_timestamp FROM outbox WHERE inbox_id IN gone
            OR reminder_id IN (SELECT id FROM reminders WHERE turn_id IN gone)
        UNION SELECT chat, signal_timestamp FROM questions WHERE turn_id IN gone
    )
    UPDATE inbox SET body = json_set(body, '$.quote.text', '')
    WHERE state = 'waiting' AND json_extract(body, '$.quote.by_bot')
        AND (chat, json_extract(body, '$.quote.timestamp')) IN said
"""
"""Deletes the quoted text of waiting messages that quote the bot's messages of some turns."""

IN: Final = "IN (SELECT value FROM json_each(?))"


def add(db: Session, turn_id: int, source: int, via: str, expires_at: int | None) -> None:
    """Note that a turn reads a source, and let it disappear no later than the source."""
    db.run(
        "INSERT OR IGNORE INTO sources (turn_id, source_id, via)"
        " SELECT ?1, id, ?3 FROM inbox WHERE id = ?2 AND id != ?1",
        *(turn_id, source, via),
    )
    if expires_at is not None:
        db.run(
            "UPDATE turns SET expires_at = min(coalesce(expires_at, ?1), ?1) WHERE id = ?2",
            *(expires_at, turn_id),
        )


def add_turn(db: Session, turn_id: int, source: int) -> None:
    """Note that a turn reads an earlier one; if that is gone by now, delete it at its end."""
    rows = db.run("SELECT expires_at FROM turns WHERE id = ?", source)
    for (expires_at,) in rows:
        add(db, turn_id, source, TURN, expires_at)
    if not rows:
        forget_at_end(db, turn_id)


def forget(
    db: Session, turns: Iterable[int], messages: Iterable[int] = (), quoting: Iterable[int] = ()
) -> tuple[list[int], list[int]]:
    """Delete turns, and everything that was derived from them.

    Args:
        turns: ids of the turns.
        messages: rows of the deleted messages: turns that have read them as overheard words or for
            catch-up are deleted too.
        quoting: turns that quote these messages.

    Returns:
        rows that owed an answer and are closed now, and turns that run and have read something of
        it: these are deleted when they end.
    """
    roots = set(turns)
    direct = _direct(db, roots)
    read_by = db.run(
        "SELECT turn_id FROM sources"
        f" WHERE via IN ('{OVERHEARD}', '{CATCH_UP}') AND source_id {IN}",
        _json(messages),
    )
    start = {*direct, *quoting, *(turn_id for (turn_id,) in read_by)}
    readers: dict[int, str] = dict(db.run(READERS_SQL, _json(start)))
    runs = {turn_id for turn_id, kind in readers.items() if kind == "scheduled"} - direct
    if runs:
        direct |= _direct(db, runs)
    db.run(UNQUOTE_SQL, _json(direct | readers.keys()))
    forget_turns(db, direct)
    closed = db.run(
        "UPDATE inbox SET state = 'done', body = NULL, outcome = 'deleted'"
        f" WHERE state = 'waiting' AND id {IN} RETURNING id",
        _json(direct - roots),
    )
    running = forget_told(db, readers.keys() - direct)
    return sorted(row for (row,) in closed), running


def _direct(db: Session, turns: Iterable[int]) -> set[int]:
    return {turn_id for (turn_id,) in db.run(DIRECT_SQL, _json(turns))}


def forget_told(db: Session, turns: Collection[int]) -> list[int]:
    """Delete turns that have read deleted content, together with their facts and reminders.

    Returns:
        turns that run: their facts and reminders are deleted now, the turns when they end.
    """
    running = [turn_id for turn_id in sorted(turns) if forget_at_end(db, turn_id)]
    forget_turns(db, set(turns) - set(running))
    _forget_made(db, _json(running))
    return running


def forget_turns(db: Session, turns: Collection[int]) -> None:
    """Delete turns with everything they made; waiting messages no longer belong to them."""
    if not turns:
        return
    ids = _json(turns)
    db.run(f"DELETE FROM turns WHERE id {IN}", ids)
    db.run(f"DELETE FROM exchanges WHERE turn_id {IN}", ids)
    db.run(f"UPDATE overheard SET turn_id = NULL WHERE turn_id {IN}", ids)
    db.run(f"UPDATE reactions SET told_to = NULL WHERE told_to {IN}", ids)
    db.run(
        f"UPDATE inbox SET turn_id = NULL WHERE state = 'waiting' AND turn_id {IN}",
        ids,
    )
    _forget_made(db, ids)
    outbox.drop(db, f"inbox_id {IN}", ids)


def _forget_made(db: Session, turns: str) -> None:
    """Delete facts, reminders and instructions of turns."""
    if turns == "[]":
        return
    _forget_reminders(db, turns)
    for table in ("facts", "instructions"):
        db.run(f"DELETE FROM {table} WHERE turn_id {IN}", turns)


def forget_reminders_of_facts(db: Session, turns: Iterable[int]) -> None:
    """Delete reminders of turns that were told facts of these turns, except of running turns."""
    rows = db.run(
        "SELECT turn_id FROM sources WHERE via = 'fact' AND turn_id NOT IN"
        f" (SELECT id FROM turns WHERE state = 'running') AND source_id {IN}",
        _json(turns),
    )
    _forget_reminders(db, _json(turn_id for (turn_id,) in rows))


def _forget_reminders(db: Session, turns: str) -> None:
    outbox.drop(db, f"reminder_id IN (SELECT id FROM reminders WHERE turn_id {IN})", turns)
    db.run(f"DELETE FROM reminders WHERE turn_id {IN}", turns)


def forget_at_end(db: Session, turn_id: int) -> bool:
    """Mark a running turn to be deleted when it ends; False if it does not run."""
    return bool(
        db.run(
            "UPDATE turns SET expires_at = 0 WHERE id = ? AND state = 'running' RETURNING id",
            turn_id,
        )
    )


def end(db: Session, turn_id: int) -> None:
    """Delete the history of a turn whose time is over. Facts and reminders have their own times."""
    db.run("DELETE FROM turns WHERE id = ?", turn_id)
    db.run("DELETE FROM exchanges WHERE turn_id = ?", turn_id)


def end_readers(db: Session, turns: Collection[int]) -> None:
    """Delete the history of turns that read what these turns made, because its time is over."""
    for turn_id, _ in db.run(READERS_SQL, _json(turns)):
        if turn_id not in turns and not forget_at_end(db, turn_id):
            end(db, turn_id)


def abandon(db: Session, turn_id: int) -> None:
    """End a turn without an answer, and delete its messages, files and facts."""
    sql = "UPDATE turns SET state = 'stopped', notices = NULL WHERE id = ? RETURNING id"
    if db.run(sql, turn_id):
        for table in ("messages", "images", "turn_files", "exchanges", "facts", "said", "outgoing"):
            db.run(f"DELETE FROM {table} WHERE turn_id = ?", turn_id)
        db.run("UPDATE overheard SET turn_id = NULL WHERE turn_id = ?", turn_id)
        db.run("UPDATE reactions SET told_to = NULL WHERE told_to = ?", turn_id)


def told_in_catch_up(db: Session, chat: str) -> list[int]:
    """Return the turns that were told a group's messages for catch-up."""
    rows = db.run(
        "SELECT DISTINCT sources.turn_id FROM sources JOIN inbox ON inbox.id = source_id"
        " WHERE via = 'catch_up' AND chat = ?",
        chat,
    )
    return [turn_id for (turn_id,) in rows]


def _json(ids: Iterable[int]) -> str:
    return json.dumps(sorted(ids))
