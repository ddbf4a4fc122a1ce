"""The last question of a chat: found, taken back with its answer, or answered again.

A question and the requests to answer it again are several rows with a turn each. Only the turn that
was answered last is kept. A request knows the turn of the answer before it.
"""

import json
from typing import Final

from conversation_store import changes, deletion, history, messages, outbox
from conversation_store.connections import Session
from conversation_store.models import ChatId, Question

CHANGEABLE_MS: Final = 24 * 3_600_000
"""Signal's apps delete and edit messages for everyone for a day."""

# Questions whose turn waits for people are included.
QUESTION_SQL: Final = f"""
    SELECT id, coalesce(replaces, id), EXISTS (
        SELECT 1 FROM turns WHERE turns.id = inbox.id AND state IN ('answered', 'failed')
    )
    FROM inbox
    WHERE chat = ? AND id < ? AND (
        outcome IN ('answered', 'failed', 'retried', 'bug')
        OR (outcome = 'stopped' AND ? AND retries IS NULL)
        OR (state = 'waiting' AND id IN ({history.SUSPENDED}))
    )
    ORDER BY id DESC LIMIT 1
"""

FIRST_SQL: Final = """
    WITH RECURSIVE earlier (id) AS (
        SELECT ? UNION SELECT retries FROM inbox JOIN earlier ON inbox.id = earlier.id
        WHERE retries NOT NULL
    )
    SELECT author, received_at FROM inbox WHERE id = (SELECT min(id) FROM earlier)
"""

SHOWN_SQL: Final = """
    SELECT progress_timestamp FROM turns WHERE id = ?1 AND progress_timestamp NOT NULL
    UNION SELECT signal_timestamp FROM questions WHERE signal_timestamp NOT NULL AND turn_id = ?1
    UNION SELECT part.value FROM questions, json_each(earlier) part WHERE turn_id = ?1
"""
"""Messages of a turn other than its answer."""


def last_question(db: Session, chat: ChatId, before: int, *, or_stopped: bool) -> Question | None:
    """Return the last question of a chat; see `TurnStore.last_question`."""
    for turn_id, root, is_kept in db.run(QUESTION_SQL, chat, before, or_stopped):
        for asker, asked_at in db.run(FIRST_SQL, turn_id):
            return Question(chat, turn_id, root, asker, asked_at, bool(is_kept))
    return None


def undo(db: Session, question: Question, now_ms: int) -> list[int]:
    """Delete a question with everything that came of it.

    Returns:
        Signal's timestamps of its messages that people see and Signal can delete: the answer,
        its progress, and questions to people.
    """
    since = now_ms - CHANGEABLE_MS
    rows = [
        row
        for (row,) in db.run(
            "SELECT ?1 UNION SELECT ?2 UNION SELECT id FROM inbox WHERE replaces = ?2",
            *(question.turn, question.root),
        )
    ]
    shown = []
    if question.asked_at >= since:
        shown = sorted(at for (at,) in db.run(SHOWN_SQL, question.turn))
    for at in shown:  # a poll that is deleted for everyone need not be ended
        db.run("DELETE FROM polls WHERE chat = ? AND signal_timestamp = ?", question.chat, at)
    pieces = db.run(
        "SELECT id, coalesce(turn_id, id) FROM inbox"
        " WHERE (id IN (SELECT value FROM json_each(?1))"
        " OR turn_id IN (SELECT value FROM json_each(?1)))",
        json.dumps(rows),
    )
    found = [messages.Version(row, False, None, turn_id) for row, turn_id in pieces]
    shown += outbox.seen(db, rows, since)
    for row in rows:
        if messages.is_waiting(db, row):  # its turn waits for people
            messages.close_joined(db, row)
            messages.close(db, row, messages.UNDONE)
    changes.forget_messages(db, found)
    for row, _ in pieces:
        db.run("UPDATE inbox SET outcome = ? WHERE id = ?", messages.UNDONE, row)
    return shown


def conclude(db: Session, row: int, question: Question, now_ms: int) -> int | None:
    """Replace the earlier answer of a question by a new one, and delete the earlier history.

    Facts and reminders of the earlier turn are kept: the model was told of its calls, so it does
    not repeat them. A deletion of the question still finds them.

    Returns:
        the row whose answer it replaces; None if Signal no longer edits that.
    """
    deletion.end(db, question.turn)
    changes.replace_answer(db, row, question.root)
    return question.root if question.asked_at >= now_ms - CHANGEABLE_MS else None
