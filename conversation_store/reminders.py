"""Reminders and scheduled questions: kept until their time, then said once.

A due reminder becomes an outgoing message, and a due question an incoming one. The same transaction
closes it or moves it to its next date, so a crash loses and repeats nothing. So a reminder waits,
is delivered (said, and not yet done), or is done; a series keeps waiting. A reminder comes from the
turn that set it. That turn is a source of every turn that is told the reminder.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from conversation_store import deletion, messages, outbox
from conversation_store.connections import Row, Session
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    reads,
    writes,
    writes_and_scrubs_soon,
)
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    FurtherDate,
    NewReminder,
    OutgoingMessage,
    ReceivedMessage,
    StoredReminder,
)

COLUMNS: Final = (
    "reminders.id, number, reminders.person, account, chat, kind = 'question', coalesce(text, ''),"
    " local_at, repeat, due_at,"
    " (SELECT zone FROM clocks WHERE clocks.person = reminders.person), state = 'delivered',"
    " person_name, person_number, timer_ms, failures"
)
SELECT: Final = f"SELECT {COLUMNS} FROM reminders WHERE"

MAX_RUNG: Final = 5
"""Reminders that a turn is told of."""

MAX_FAILURES: Final = 3
"""A question that fails so often in a row is asked no more."""


def _find(db: Session, reminder: int) -> StoredReminder | None:
    """Return a reminder that waits; None if it does not."""
    return next(iter(_stored(db.run(f"{SELECT} id = ? AND state = 'waiting'", reminder))), None)


def _sent_as(db: Session, chat: ChatId, signal_timestamp: int) -> StoredReminder | None:
    """Return the reminder behind a message of the bot; None for other messages."""
    rows = db.run(
        f"{SELECT} text IS NOT NULL AND id IN"
        " (SELECT reminder_id FROM outbox WHERE chat = ? AND signal_timestamp = ?)",
        *(chat, signal_timestamp),
    )
    return next(iter(_stored(rows)), None)


def rung(db: Session, chat: ChatId) -> tuple[StoredReminder, ...]:
    """Return the reminders that came in a chat since its last turn began, oldest first."""
    rows = db.run(
        f"{SELECT} text IS NOT NULL AND kind = 'reminder' AND id IN"
        " (SELECT reminder_id FROM outbox WHERE chat = ?1 AND reminder_id IS NOT NULL"
        " AND created_at > (SELECT started_at FROM turns WHERE chat = ?1 ORDER BY id DESC LIMIT 1))"
        " ORDER BY due_at LIMIT ?2",
        *(chat, MAX_RUNG),
    )
    return _stored(rows)


class ReminderStore(Aggregate):
    """The reminders of all people."""

    find = reads(of_aggregate(_find))
    sent_as = reads(of_aggregate(_sent_as))

    # For tools and commands

    @reads
    def zone_of(self, db: Session, person: str) -> str | None:
        """Return a person's time zone; None if it is not known."""
        found: str | None = db.value("SELECT zone FROM clocks WHERE person = ?", person)
        return found

    @reads
    def local_ones(self, db: Session, person: str) -> tuple[StoredReminder, ...]:
        """Return a person's reminders that come at a local time, of all chats."""
        where = "reminders.person = ? AND state = 'waiting' AND local_at IS NOT NULL"
        return _stored(db.run(f"{SELECT} {where}", person))

    @writes
    def set_zone(
        self, db: Session, person: str, zone: str, changes: Sequence[tuple[int, str, int]]
    ) -> None:
        """Store a person's time zone, and when reminders come by it.

        Args:
            zone: a name of the IANA database.
            changes: row, local time and moment (ms) of each reminder. Reminders with another local
                time by now have moved to a next date, computed in the old zone: they stay so.
        """
        db.run(
            "INSERT INTO clocks (person, zone) VALUES (?, ?)"
            " ON CONFLICT (person) DO UPDATE SET zone = excluded.zone",
            *(person, zone),
        )
        for reminder, local_at, due_at in changes:
            db.run(
                "UPDATE reminders SET due_at = ?"
                " WHERE id = ? AND local_at = ? AND state = 'waiting'",
                *(due_at, reminder, local_at),
            )

    @writes
    def add(
        self,
        db: Session,
        person: str,
        chat: str,
        new: NewReminder,
        *,
        turn: int | None,
        call: str,
        at_most: int,
    ) -> StoredReminder | None:
        """Add a reminder, or return the reminder that the same call has added before.

        The names of the person are those of the turn's message, which still waits for its answer.

        Args:
            at_most: how many a person may have waiting.

        Returns:
            None if the person has `at_most` already, or if the turn is gone.
        """
        before = _stored(db.run(f"{SELECT} turn_id = ? AND call_id = ?", turn, call))
        if before:
            return before[0]
        sql = "SELECT count(*) FROM reminders WHERE person = ? AND state = 'waiting'"
        if db.value(sql, person) >= at_most:
            return None
        rows = db.run(
            "INSERT INTO reminders (person, number, kind, state, account, chat, person_name,"
            " person_number, text, local_at, repeat, due_at, created_at, timer_ms, turn_id,"
            " call_id) SELECT ?1, coalesce((SELECT last_number FROM clocks"
            " WHERE person = ?1), 0) + 1, ?2, 'waiting', account, ?3,"
            " iif(?4, json_extract(body, '$.author_name'), NULL),"
            " json_extract(body, '$.author_number'), ?5, ?6, ?7, ?8, ?9,"
            " (SELECT min(expires_at - received_at) FROM inbox AS piece"
            " WHERE piece.id = ?10 OR piece.turn_id = ?10), ?10, ?11"
            # A turn that was deleted, or has read something deleted since, sets no reminders.
            " FROM inbox WHERE id = ?10 AND state = 'waiting' AND EXISTS"
            " (SELECT 1 FROM turns WHERE turns.id = ?10 AND expires_at IS NOT 0)"
            " RETURNING id, number",
            *(person, "question" if new.is_question else "reminder"),
            *(chat, ChatId.parse(chat).is_group, new.text, new.local_at, new.repeat, new.due_at),
            *(self._now_ms(), turn, call),
        )
        for reminder, number in rows:
            db.run(
                "INSERT INTO clocks (person, last_number) VALUES (?, ?)"
                " ON CONFLICT (person) DO UPDATE SET last_number = excluded.last_number",
                *(person, number),
            )
            return _find(db, reminder)
        return None

    @reads
    def of(self, db: Session, person: str, chat: str) -> tuple[StoredReminder, ...]:
        """Return the reminders that a person may be told in a chat, by the time they come.

        In a group only those of the group; in private all.
        """
        return _of_person(db, person, ChatId.parse(chat))

    @writes
    def tell(
        self, db: Session, person: str, chat: str, *, turn: int | None
    ) -> tuple[StoredReminder, ...]:
        """Return the same as `of`, and note that the turn knows them."""
        told = _of_person(db, person, ChatId.parse(chat))
        tell(db, told, turn, self._now_ms())
        return told

    @reads
    def are_in(self, db: Session, chat: ChatId) -> bool:
        """Return whether a reminder is still to come in a chat."""
        sql = "SELECT 1 FROM reminders WHERE chat = ? AND state = 'waiting' LIMIT 1"
        return bool(db.run(sql, chat))

    @writes_and_scrubs_soon
    def cancel(
        self,
        db: Session,
        person: str,
        chat: str,
        number: int,
        *,
        turn: int | None = None,
        call: str | None = None,
    ) -> StoredReminder | None:
        """Delete a reminder that `of` would return, and return it; None without one.

        A repeated call returns the reminder that it has cancelled before, without its text.
        """
        for reminder in _of_person(db, person, ChatId.parse(chat)):
            if reminder.number == number:
                now = self._now_ms()
                tell(db, (reminder,), turn, now)
                _end(db, reminder.id, now)
                db.run(
                    "UPDATE reminders SET cancelled_in = ?, cancelled_by = ? WHERE id = ?",
                    *(turn, call, reminder.id),
                )
                return reminder
        where = "reminders.person = ? AND number = ? AND cancelled_in = ? AND cancelled_by = ?"
        return next(iter(_stored(db.run(f"{SELECT} {where}", person, number, turn, call))), None)

    @writes_and_scrubs_soon
    def done(self, db: Session, person: str, chat: ChatId, signal_timestamp: int) -> bool:
        """Mark the reminder behind a message of the bot as done. A series goes on.

        Returns:
            whether the message was a reminder of that person.
        """
        reminder = _sent_as(db, chat, signal_timestamp)
        if reminder is None or reminder.person != person:
            return False
        if reminder.is_delivered:
            _end(db, reminder.id, self._now_ms())
        sql = "UPDATE outbox SET reminder_id = NULL WHERE reminder_id = ? AND state = 'sent'"
        db.run(sql, reminder.id)
        return True

    # When their time has come

    @reads
    def due(
        self, db: Session, now_ms: int, *, after: tuple[int, int], at_most: int
    ) -> list[tuple[int, ChatId, int]]:
        """Return row, chat and due time of due reminders, after a due time and row, in order."""
        rows = db.run(
            "SELECT id, chat, due_at FROM reminders WHERE state = 'waiting' AND due_at <= ?"
            " AND (due_at, id) > (?, ?) ORDER BY due_at, id LIMIT ?",
            *(now_ms, *after, at_most),
        )
        return [(id_, ChatId.parse(chat), due_at) for id_, chat, due_at in rows]

    @reads
    def next_due(self, db: Session, now_ms: int) -> int | None:
        """Return when the next reminder is due that is not due yet, in ms; None without one."""
        sql = "SELECT min(due_at) FROM reminders WHERE state = 'waiting' AND due_at > ?"
        found: int | None = db.value(sql, now_ms)
        return found

    @writes
    def deliver(
        self,
        db: Session,
        reminder: StoredReminder,
        text: str,
        further: FurtherDate | None,
        now_ms: int,
    ) -> OutgoingMessage | None:
        """Turn a reminder into a message that goes out, and move it to its next date.

        Args:
            further: the next date; None if it comes no more.

        Returns:
            None if the reminder was cancelled or moved in the meantime.
        """
        if not _is_still(db, reminder):
            return None
        expires_at = None if reminder.timer_ms is None else now_ms + reminder.timer_ms
        note = outbox.note(db, reminder.chat, text, self._now_ms(), expires_at)
        # People answer the last message only.
        sql = "UPDATE outbox SET reminder_id = NULL WHERE reminder_id = ? AND state = 'sent'"
        db.run(sql, reminder.id)
        db.run("UPDATE outbox SET reminder_id = ? WHERE id = ?", reminder.id, note.id)
        if further is None and self._context.retention_days and not reminder.is_question:
            db.run(
                "UPDATE reminders SET state = 'delivered', ended_at = ?, expires_at = ?"
                " WHERE id = ?",
                *(now_ms, expires_at, reminder.id),
            )
        else:
            _go_on(db, reminder, further, now_ms)
        return note

    @writes
    def ask(
        self,
        db: Session,
        question: StoredReminder,
        further: FurtherDate | None,
        now_ms: int,
    ) -> AcceptedMessage | None:
        """Turn a question into a message that owes an answer, and move it to its next date.

        Args:
            further: the next date; None if it comes no more.

        Returns:
            None if the question was cancelled or moved in the meantime.
        """
        if not _is_still(db, question):
            return None
        timestamp = db.value(  # its time, or the next free one
            "SELECT max(?1, coalesce(max(timestamp) + 1, 0)) FROM inbox WHERE account = ?2"
            " AND author = ?3 AND kind = 'scheduled' AND timestamp >= ?1",
            *(question.due_at, question.account, question.person),
        )
        accepted = messages.insert(
            db,
            ReceivedMessage(
                question.account,
                question.person,
                timestamp,
                question.chat,
                question.text,
                now_ms,
                sent_at=now_ms,
                kind="scheduled",
                author_number=question.person_number,
                author_name=question.person_name,
                expires_at=None if question.timer_ms is None else now_ms + question.timer_ms,
            ),
        )
        if accepted is None:
            return None
        db.run("UPDATE reminders SET inbox_id = ? WHERE id = ?", accepted.id, question.id)
        tell(db, (question,), accepted.id, now_ms)
        _go_on(db, question, further, now_ms)
        return accepted

    @writes
    def pass_over(self, db: Session, reminder: StoredReminder, further: FurtherDate | None) -> None:
        """Move a reminder to its next date, or end it, without a message."""
        if _is_still(db, reminder):
            _go_on(db, reminder, further, self._now_ms())


def tell_quoted(db: Session, pieces: Sequence[AcceptedMessage], turn_id: int, now_ms: int) -> None:
    """Note which messages of the bot are quoted to a turn: answers, reminders and questions."""
    for piece in pieces:
        quote, chat = piece.message.quote, piece.message.chat
        if quote is None or not quote.by_bot or quote.timestamp is None:
            continue
        reminder = _sent_as(db, chat, quote.timestamp)
        tell(db, () if reminder is None else (reminder,), turn_id, now_ms)
        for source, expires_at in db.run(
            "SELECT inbox_id, expires_at FROM outbox"
            " WHERE chat = ?1 AND signal_timestamp = ?2 AND inbox_id IS NOT NULL"
            " UNION SELECT turn_id, turns.expires_at FROM messages"
            " JOIN turns ON turns.id = turn_id WHERE messages.id IN ("
            "SELECT id FROM questions WHERE chat = ?1 AND signal_timestamp = ?2)",
            *(chat, quote.timestamp),
        ):
            deletion.add(db, turn_id, source, deletion.TURN, expires_at)


def count_run(db: Session, row: int, *, has_failed: bool, now_ms: int) -> None:
    """Count the outcome of a question. After too many failures it is due at once, to say so."""
    if not has_failed:
        db.run("UPDATE reminders SET failures = 0 WHERE inbox_id = ?", row)
        return
    db.run(
        "UPDATE reminders SET failures = failures + 1,"
        " due_at = iif(failures + 1 >= ?, ?, due_at) WHERE inbox_id = ? AND state = 'waiting'",
        *(MAX_FAILURES, now_ms, row),
    )


def close_debts(db: Session, now_ms: int) -> None:
    """End due reminders of a restored copy, except series: they may have been said since."""
    for (reminder,) in db.run(
        "SELECT id FROM reminders WHERE state = 'waiting' AND repeat IS NULL AND due_at <= ?",
        now_ms,
    ):
        _end(db, reminder, now_ms)


def expire(db: Session, now_ms: int) -> None:
    """End delivered reminders that have disappeared."""
    for (reminder,) in db.run("SELECT id FROM reminders WHERE expires_at <= ?", now_ms):
        _end(db, reminder, now_ms)


def purge(db: Session, before: int, at_most: int) -> int:
    """Delete reminders that ended before a time, and the history of turns that knew them."""
    rows = db.run(
        "DELETE FROM reminders WHERE id IN"
        " (SELECT id FROM reminders WHERE ended_at < ? LIMIT ?) RETURNING turn_id",
        *(before, at_most),
    )
    if rows:
        deletion.end_readers(db, {turn_id for (turn_id,) in rows if turn_id is not None})
    return len(rows)


def _of_person(db: Session, person: str, chat: ChatId) -> tuple[StoredReminder, ...]:
    rows = db.run(
        f"{SELECT} reminders.person = ? AND text IS NOT NULL"
        " AND state != 'done' AND (chat = ? OR ?) ORDER BY due_at, number",
        *(person, chat, not chat.is_group),
    )
    return _stored(rows)


def _is_still(db: Session, reminder: StoredReminder) -> bool:
    """Return whether a reminder still waits, unchanged since it was read."""
    sql = "SELECT 1 FROM reminders WHERE id = ? AND due_at = ? AND state = 'waiting'"
    return bool(db.run(sql, reminder.id, reminder.due_at))


def _go_on(db: Session, reminder: StoredReminder, further: FurtherDate | None, now_ms: int) -> None:
    if further is None:
        _end(db, reminder.id, now_ms)
        return
    db.run(
        "UPDATE reminders SET local_at = ?, repeat = ?, due_at = ? WHERE id = ?",
        *(further.local_at, further.repeat, further.due_at, reminder.id),
    )


def _end(db: Session, reminder: int, now_ms: int) -> None:
    """Delete the words of a reminder that comes no more."""
    db.run(
        "UPDATE reminders SET state = 'done', text = NULL, person_name = NULL,"
        " person_number = NULL, expires_at = NULL, ended_at = ? WHERE id = ?",
        *(now_ms, reminder),
    )


def tell(db: Session, told: Iterable[StoredReminder], turn_id: int | None, now_ms: int) -> None:
    """Note that a turn knows the words of reminders."""
    for reminder in told:
        for source, expires_at in db.run(
            "SELECT turn_id, coalesce(expires_at, ?1 + timer_ms) FROM reminders WHERE id = ?2",
            *(now_ms, reminder.id),
        ):
            if turn_id is not None:
                deletion.add(db, turn_id, source, deletion.TURN, expires_at)


def _stored(rows: Iterable[Row]) -> tuple[StoredReminder, ...]:
    """Return reminders from rows of `COLUMNS`."""
    found = []
    for row in rows:
        values = list(row)
        values[4], values[5], values[11] = ChatId.parse(row[4]), bool(row[5]), bool(row[11])
        found.append(StoredReminder(*values))
    return tuple(found)
