"""Edits, deletions and stops of messages; the last question taken back, or answered again.

A question and the requests to answer it again are several rows with a turn each. Only the turn that
was answered last is kept. A request knows the turn of the answer before it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conversation_store import deletion, files, heard, history, messages, outbox, questions
from conversation_store.connections import Session
from conversation_store.database import Aggregate, writes_and_scrubs, writes_and_scrubs_soon
from conversation_store.models import (
    DAY_MS,
    AcceptedMessage,
    ChatId,
    EditOutcome,
    OutgoingMessage,
    Question,
    ReceivedMessage,
)

REFUSALS: Final = frozenset({"rate_limited", "mailbox_full", messages.APPROVAL})
"""Outcomes of messages that were refused: an edit does not answer them."""


def carry_out(db: Session, deletion_: AcceptedMessage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Carry out a deletion: delete its message and everything derived from it.

    The deletion's own row is kept, to refuse the message if it arrives later. Other messages of a
    deleted turn wait again, without a turn.

    Returns:
        the rows that owed an answer and are closed now, whose turns must be stopped; and the
        running turns that have read something of it, which are deleted when they end.
    """
    found = messages.versions(db, deletion_.message)
    closed, told = forget_messages(db, found, messages.quoting(db, deletion_.message))
    for version in found:
        messages.close(db, version.id, "deleted")
    messages.close(db, deletion_.id, "deleted")
    closed += [version.id for version in found if version.waiting]
    return tuple(closed), tuple(told)


class ChangeStore(Aggregate):
    """Changes of messages that were stored."""

    @writes_and_scrubs
    def forget(
        self, db: Session, deletion_: AcceptedMessage, *, unseen: str = ""
    ) -> tuple[tuple[int, ...], tuple[int, ...], OutgoingMessage | None]:
        """Carry out a deletion, and store the deletions of the bot's messages about it.

        Args:
            unseen: says that an answer that nobody has seen yet also answered other messages.

        Returns:
            see `carry_out`; and the message with these words, if they are true.
        """
        chat, now_ms = deletion_.message.chat, self._now_ms()
        found = messages.versions(db, deletion_.message)
        is_lost = _loses_an_answer(db, found)
        for turn_id in sorted({version.turn_id for version in found}):
            _withdraw(db, chat, turn_id, now_ms, with_answer=True)
        closed, told = carry_out(db, deletion_)
        return closed, told, outbox.note(db, chat, unseen, now_ms) if is_lost else None

    @writes_and_scrubs_soon
    def merge_edit(
        self, db: Session, edit: AcceptedMessage, target: AcceptedMessage
    ) -> AcceptedMessage:
        """Give a waiting message the words of its edit, end the edit, and return the message.

        A turn that has begun starts again; its progress message and its questions are withdrawn.
        """
        message = target.message.after(edit.message)
        turn_id = messages.turn_of(db, target.id)
        _withdraw(db, message.chat, turn_id, self._now_ms(), with_answer=False)
        deletion.forget(db, [turn_id])
        messages.change(db, target.id, message)
        messages.close(db, edit.id, messages.MERGED)
        return replace(target, message=message)

    @writes_and_scrubs_soon
    def take_back_answer(self, db: Session, edit: AcceptedMessage, answer: AcceptedMessage) -> None:
        """Delete the turn whose question an edited message had answered, and end the edit.

        The turn's own messages wait for a new turn, and the answer, as it reads now, is one of
        them. The turn's progress message and its questions are withdrawn.
        """
        turn_id = messages.turn_of(db, answer.id)
        questions.revoke_given_by(db, [answer.id])
        _withdraw(db, edit.message.chat, turn_id, self._now_ms(), with_answer=False)
        deletion.forget(db, [turn_id])
        messages.reopen(db, answer)
        messages.join(db, answer.id, turn_id)
        messages.close(db, edit.id, messages.MERGED)

    @writes_and_scrubs
    def settle_edit(
        self, db: Session, edit: AcceptedMessage, *, answered_within_ms: int
    ) -> tuple[EditOutcome, AcceptedMessage]:
        """Settle what an edit changes, once no earlier message of its chat waits.

        Args:
            answered_within_ms: older answers stay as they are.

        Returns:
            unknown: the edit still waits, to be answered as a message. too_late: its message was
            answered long ago, or was refused, so the edit is closed. answered: the turn of the
            earlier answer is deleted, its progress message and its questions are withdrawn, and the
            edit, which is returned with `replaces`, waits to be answered in its place.
        """
        root = db.value("SELECT replaces FROM inbox WHERE id = ?", edit.id)
        if root is not None:
            return "answered", replace(edit, replaces=root)
        earlier = [
            version
            for version in messages.versions(db, edit.message)
            if version.id < edit.id and version.outcome not in messages.NOT_EDITED
        ]
        if not earlier:
            return "unknown", edit
        # The message itself, unless one of its edits came first.
        first = min(earlier, key=lambda version: version.id)
        questions.revoke_given_by(db, [first.id])
        answered_since = self._now_ms() - answered_within_ms
        if first.outcome != "deleted" and _reopen(
            db, edit.message.chat, first.turn_id, answered_since, self._now_ms()
        ):
            replace_answer(db, edit.id, first.turn_id)
            return "answered", replace(edit, replaces=first.turn_id)
        messages.close(db, edit.id, "edit_too_late")
        return "too_late", edit

    @writes_and_scrubs
    def edit_overheard(self, db: Session, edit: ReceivedMessage) -> None:
        """Replace words that people said to each other. Edits of unknown messages are not stored.

        Turns keep the words that they were told.
        """
        rows = messages.version_ids(db, edit)
        heard.change_kept(db, edit.text, rows)
        heard.change_overheard(db, edit.text, rows)
        if rows:
            messages.insert_key(db, edit)

    @writes_and_scrubs_soon
    def stop(self, db: Session, rows: Sequence[int]) -> None:
        """Close messages that a person no longer wants answered, and end their turns.

        Their open questions are deleted for everyone, because nobody waits for an answer.
        """
        for row in rows:
            _withdraw_questions(db, row, self._now_ms())
            if messages.outcome(db, row) != "deleted":
                deletion.abandon(db, row)
                messages.close(db, row, "stopped")
                messages.close_joined(db, row)


def forget_messages(
    db: Session,
    found: Sequence[messages.Version],
    quoting: Sequence[tuple[int, int]] = (),
) -> tuple[list[int], list[int]]:
    """Delete the words of messages and everything derived from them; see `deletion.forget`.

    Args:
        found: the messages and their edits.
        quoting: messages that quote them, with their turns.
    """
    rows = [version.id for version in found]
    heard.forget(db, rows)
    files.doom(db, rows)
    messages.unquote(db, (row for row, _ in quoting))
    questions.revoke_given_by(db, rows)
    turns = {version.turn_id for version in found}
    return deletion.forget(db, turns, rows, (turn_id for _, turn_id in quoting))


def _loses_an_answer(db: Session, found: Sequence[messages.Version]) -> bool:
    """Return whether the unsent answer to some messages answers others as well."""
    rows = db.run(
        "SELECT 1 FROM inbox WHERE coalesce(turn_id, id) IN (SELECT value FROM json_each(?1))"
        " AND id NOT IN (SELECT value FROM json_each(?2))"
        " AND outcome IN ('answered', 'failed', 'bug', 'joined')"
        " AND EXISTS (SELECT 1 FROM outbox WHERE inbox_id = coalesce(turn_id, inbox.id))"
        " AND NOT EXISTS (SELECT 1 FROM outbox WHERE inbox_id = coalesce(turn_id, inbox.id)"
        " AND state != 'waiting')",
        *(json.dumps([one.turn_id for one in found]), json.dumps([one.id for one in found])),
    )
    return bool(rows)


def replace_answer(db: Session, row: int, root: int) -> None:
    """Note that the answer to a row replaces an earlier answer."""
    db.run("UPDATE inbox SET replaces = ? WHERE id = ?", root, row)


def _reopen(db: Session, chat: ChatId, root: int, answered_since: int, now_ms: int) -> bool:
    """Delete the turns that answered a message; False if the last answer stays as it is."""
    last = outbox.last_answer(db, root)
    if last is None:
        return False
    _, outcome, created_at = last
    if outcome in REFUSALS or created_at < answered_since:
        return False
    rows = [row for (row,) in db.run("SELECT id FROM inbox WHERE id = ?1 OR replaces = ?1", root)]
    for row in rows:
        _withdraw(db, chat, row, now_ms, with_answer=False)
    deletion.forget(db, rows)
    return True


CHANGEABLE_MS: Final = DAY_MS
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

OPEN_SQL: Final = """
    SELECT signal_timestamp FROM questions
    WHERE state = 'open' AND signal_timestamp NOT NULL AND turn_id = ?1
    UNION SELECT part.value FROM questions, json_each(earlier) part
    WHERE state = 'open' AND turn_id = ?1
"""
"""Questions of a turn that have no answer yet."""


def last_question(db: Session, chat: ChatId, before: int, *, or_stopped: bool) -> Question | None:
    """Return the last question of a chat that came before an inbox row; None without one.

    Args:
        or_stopped: include a question that was stopped, though nothing is kept of it.
    """
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
    rows = _answers(db, question.turn, question.root)
    shown = _shown(db, question.chat, question.turn, rows, now_ms)
    pieces = db.run(
        "SELECT id, coalesce(turn_id, id) FROM inbox"
        " WHERE (id IN (SELECT value FROM json_each(?1))"
        " OR turn_id IN (SELECT value FROM json_each(?1)))",
        json.dumps(rows),
    )
    found = [messages.Version(row, False, None, turn_id) for row, turn_id in pieces]
    for row in rows:
        if db.run(
            "SELECT 1 FROM inbox WHERE id = ? AND state = 'waiting'", row
        ):  # its turn waits for people
            messages.close_joined(db, row)
            messages.close(db, row, messages.UNDONE)
    forget_messages(db, found)
    for row, _ in pieces:
        db.run("UPDATE inbox SET outcome = ? WHERE id = ?", messages.UNDONE, row)
    return shown


def _answers(db: Session, turn_id: int, root: int) -> list[int]:
    """Return the rows of a turn, of the message that was answered first, and of its edits."""
    sql = "SELECT ?1 UNION SELECT ?2 UNION SELECT id FROM inbox WHERE replaces = ?2"
    return [row for (row,) in db.run(sql, turn_id, root)]


def _withdraw(db: Session, chat: ChatId, turn_id: int, now_ms: int, *, with_answer: bool) -> None:
    """Store the deletions for everyone of a turn's progress and questions, and of its answer."""
    root = db.value("SELECT coalesce(replaces, id) FROM inbox WHERE id = ?", turn_id) or turn_id
    rows = _answers(db, turn_id, root) if with_answer else []
    for timestamp in _shown(db, chat, turn_id, rows, now_ms):
        outbox.removal(db, chat, timestamp, now_ms)


def _withdraw_questions(db: Session, turn_id: int, now_ms: int) -> None:
    """Store the deletions for everyone of a turn's open questions."""
    for (chat,) in db.run("SELECT chat FROM inbox WHERE id = ?", turn_id):
        for timestamp in _of_turn(db, ChatId.parse(chat), turn_id, OPEN_SQL, now_ms):
            outbox.removal(db, ChatId.parse(chat), timestamp, now_ms)


def _shown(db: Session, chat: ChatId, turn_id: int, rows: Sequence[int], now_ms: int) -> list[int]:
    """Return Signal's timestamps of messages that people see and Signal can delete.

    These are the answers to the rows, and the turn's progress and questions.
    """
    shown = list[int]()
    for turn in sorted({turn_id, *rows}):  # a retry has questions of its own
        shown += _of_turn(db, chat, turn, SHOWN_SQL, now_ms)
    return shown + outbox.seen(db, rows, now_ms - CHANGEABLE_MS)


def _of_turn(db: Session, chat: ChatId, turn_id: int, sql: str, now_ms: int) -> list[int]:
    """Return the messages of a turn that Signal can delete; polls among them need no end."""
    received_at = db.value("SELECT received_at FROM inbox WHERE id = ?", turn_id) or 0
    if received_at < now_ms - CHANGEABLE_MS:
        return []
    shown = sorted(at for (at,) in db.run(sql, turn_id))
    for at in shown:
        db.run("DELETE FROM polls WHERE chat = ? AND signal_timestamp = ?", chat, at)
    return shown


def conclude(db: Session, row: int, question: Question, now_ms: int) -> int | None:
    """Replace the earlier answer of a question by a new one, and delete the earlier history.

    The progress message and the questions of the earlier turn are withdrawn.

    Facts and reminders of the earlier turn are kept: the model was told of its calls, so it does
    not repeat them. A deletion of the question still finds them.

    Returns:
        the row whose answer it replaces; None if Signal no longer edits that.
    """
    _withdraw(db, question.chat, question.turn, now_ms, with_answer=False)
    deletion.end(db, question.turn)
    replace_answer(db, row, question.root)
    return question.root if question.asked_at >= now_ms - CHANGEABLE_MS else None
