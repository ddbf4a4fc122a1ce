"""The last question of a chat: found, taken back with its answer, or answered anew.

A question and those who asked it anew are several rows with a turn each, of which only the last
that was answered is kept. A request to answer it anew knows the turn that it is about.
"""

from typing import Final

from conversation_store import (
    catch_up,
    inbox,
    outgoing,
    remembered,
    reminders,
    suspended,
    turns,
)
from conversation_store.connections import Execute
from conversation_store.models import ChatId, Question

CHANGEABLE_MS: Final = 24 * 3_600_000
"""Signal's apps delete and edit no message for everyone that is older than a day."""

QUESTION_SQL: Final = f"""
    SELECT id, coalesce(replaces, id), EXISTS (
        SELECT 1 FROM turns WHERE turns.id = inbox.id AND state IN ('answered', 'failed')
    )
    FROM inbox
    WHERE chat = ? AND id < ? AND (
        outcome IN ('answered', 'failed', 'retried', 'bug')
        OR (outcome = 'stopped' AND ? AND retries IS NULL)
        OR (state = 'waiting' AND id IN ({suspended.SUSPENDED}))
    )
    ORDER BY id DESC LIMIT 1
"""  # noqa: S608
"""One whose turn waits for people is the last one as well."""

FIRST_SQL: Final = """
    WITH RECURSIVE earlier (id) AS (
        SELECT ? UNION SELECT retries FROM inbox JOIN earlier ON inbox.id = earlier.id
        WHERE retries NOT NULL
    )
    SELECT author, received_at FROM inbox WHERE id = (SELECT min(id) FROM earlier)
"""


def last_question(
    execute: Execute, chat: ChatId, before: int, *, or_stopped: bool
) -> Question | None:
    """Return the last question of a chat; None where none is known.

    Args:
        execute: runs a statement.
        chat: the chat.
        before: an inbox row; what came later does not count.
        or_stopped: one that was stopped counts as well, though nothing is kept of it.
    """
    rows = list(execute(QUESTION_SQL, (chat, before, or_stopped)))
    for turn_id, root, is_kept in rows:
        for asker, asked_at in execute(FIRST_SQL, (turn_id,)):
            return Question(chat, turn_id, root, asker, asked_at, bool(is_kept))
    return None


def undo(execute: Execute, question: Question, now_ms: int) -> list[int]:
    """Forget a question with all that came of it.

    Returns:
        Signal's timestamps of what people still see of it, as far as Signal deletes it: the
        answer, its progress, and what was asked on the way.
    """
    since = now_ms - CHANGEABLE_MS
    rows = _rows_of(execute, question)
    shown = [*_shown_meanwhile(execute, question.turn)] if question.asked_at >= since else []
    for timestamp in shown:  # a poll that is deleted for everyone need not be ended
        execute(
            "DELETE FROM polls WHERE chat = ? AND signal_timestamp = ?", (question.chat, timestamp)
        )
    for row in rows:
        if inbox.is_waiting(execute, row):  # its turn waits for people
            inbox.close_joined(execute, row)
            inbox.close(execute, row, inbox.UNDONE)
        turns.forget(execute, row)
        outgoing.drop_unsent(execute, row)
        turns.forget_with_answers(execute, catch_up.forget_question(execute, question.chat, row))
    for row in rows:
        execute(
            "UPDATE inbox SET outcome = ? WHERE state = 'done' AND (id = ? OR turn_id = ?)",
            (inbox.UNDONE, row, row),
        )
    return [*shown, *outgoing.seen(execute, rows, since)]


def conclude(execute: Execute, inbox_id: int, question: Question, now_ms: int) -> int | None:
    """Let the answer that a message asked for anew stand for the earlier one, which is forgotten.

    Returns:
        the row whose answer it takes the place of; None where Signal edits that no more.
    """
    # The model was told which tools were called, so it neither remembers nor reminds a second time.
    remembered.hand_on(execute, question.turn, inbox_id)
    reminders.hand_on(execute, question.turn, inbox_id)
    turns.forget(execute, question.turn)
    inbox.replace_answer(execute, inbox_id, question.root)
    return question.root if question.asked_at >= now_ms - CHANGEABLE_MS else None


def _rows_of(execute: Execute, question: Question) -> list[int]:
    """Return the row of a question, of its edits, and of requests to answer it anew."""
    rows = execute(
        "SELECT ?1 UNION SELECT ?2 UNION SELECT id FROM inbox WHERE replaces = ?2",
        (question.turn, question.root),
    )
    return sorted(row for (row,) in rows)


def _shown_meanwhile(execute: Execute, turn_id: int) -> list[int]:
    rows = execute(
        "SELECT progress_timestamp FROM turns WHERE id = ?1 AND progress_timestamp NOT NULL"
        " UNION SELECT signal_timestamp FROM approvals WHERE signal_timestamp NOT NULL"
        " AND id IN (SELECT id FROM messages WHERE turn_id = ?1)"
        " UNION SELECT signal_timestamp FROM questions WHERE signal_timestamp NOT NULL"
        " AND turn_id = ?1"
        " UNION SELECT part.value FROM questions, json_each(earlier) part WHERE turn_id = ?1",
        (turn_id,),
    )
    return sorted(timestamp for (timestamp,) in rows)
