"""Reminders: what waits for its time, what was delivered, and until when that is kept.

What waits is kept however old its chat's other messages are. What was delivered stays a while, so
that it can be moved or marked as done: as long as the retention says, or its chat's timer.
"""

from typing import Final

from conversation_store.connections import Execute, Row
from conversation_store.models import ChatId, DueReminder, FurtherDate, StoredReminder

COLUMNS: Final = (
    "reminders.id, number, reminders.person, account, chat, kind, text, local_at, repeat, due_at,"
    " (SELECT zone FROM clocks WHERE clocks.person = reminders.person), state, person_name,"
    " person_number, timer_ms, failures"
)

DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS

MAX_FAILURES: Final = 3
"""A question that nothing comes of so often in a row is asked no more."""


def find(execute: Execute, reminder: int) -> StoredReminder | None:
    """Return a reminder that waits."""
    sql = f"SELECT {COLUMNS} FROM reminders WHERE id = ? AND state = 'waiting'"  # noqa: S608
    return next(map(stored, list(execute(sql, (reminder,)))), None)


def of_call(execute: Execute, turn_id: int | None, call: str) -> StoredReminder | None:
    """Return what a call has added before, whatever became of it."""
    sql = f"SELECT {COLUMNS} FROM reminders WHERE turn_id = ? AND call_id = ?"  # noqa: S608
    return next(map(stored, list(execute(sql, (turn_id, call)))), None)


def of_person(execute: Execute, person: str, chat: ChatId) -> tuple[StoredReminder, ...]:
    """Return what a person has that may be told in a chat, by when it comes."""
    sql = (
        f"SELECT {COLUMNS} FROM reminders WHERE reminders.person = ? AND text IS NOT NULL"  # noqa: S608
        " AND state != 'done' AND (chat = ? OR ?) ORDER BY due_at, number"
    )
    return tuple(map(stored, execute(sql, (person, chat, not chat.is_group))))


def local_of_person(execute: Execute, person: str) -> tuple[StoredReminder, ...]:
    """Return what a person has that comes at a local time."""
    sql = (
        f"SELECT {COLUMNS} FROM reminders WHERE reminders.person = ? AND state = 'waiting'"  # noqa: S608
        " AND local_at IS NOT NULL"
    )
    return tuple(map(stored, execute(sql, (person,))))


def count_waiting(execute: Execute, person: str) -> int:
    """Return how many a person has that are still to come."""
    sql = "SELECT count(*) FROM reminders WHERE person = ? AND state = 'waiting'"
    ((count,),) = execute(sql, (person,))
    return int(count)


def due(
    execute: Execute, now_ms: int, after: tuple[int, int], at_most: int
) -> tuple[DueReminder, ...]:
    """Return what is due and comes behind a (due time, row), in that order."""
    rows = execute(
        "SELECT id, chat, due_at FROM reminders WHERE state = 'waiting' AND due_at <= ?"
        " AND (due_at, id) > (?, ?) ORDER BY due_at, id LIMIT ?",
        (now_ms, *after, at_most),
    )
    return tuple(DueReminder(id_, ChatId.parse(chat), due_at) for id_, chat, due_at in rows)


def next_due(execute: Execute, now_ms: int) -> int | None:
    """Return when the next one is due that is not yet."""
    ((due_at,),) = execute(
        "SELECT min(due_at) FROM reminders WHERE state = 'waiting' AND due_at > ?", (now_ms,)
    )
    return None if due_at is None else int(due_at)


def is_still(execute: Execute, reminder: StoredReminder) -> bool:
    """Whether a reminder waits as it was read: it was neither cancelled nor moved meanwhile."""
    sql = "SELECT 1 FROM reminders WHERE id = ? AND due_at = ? AND state = 'waiting'"
    return bool(list(execute(sql, (reminder.id, reminder.due_at))))


def go_on(execute: Execute, reminder: StoredReminder, further: FurtherDate) -> None:
    """Let a series wait for its next date."""
    execute(
        "UPDATE reminders SET local_at = ?, repeat = ?, due_at = ? WHERE id = ?",
        (further.local_at, further.repeat, further.due_at, reminder.id),
    )


def was_sent_as(execute: Execute, reminder: int, outbox_id: int) -> None:
    """Remember by which message people were told last."""
    execute("UPDATE reminders SET outbox_id = ? WHERE id = ?", (outbox_id, reminder))


def was_asked_as(execute: Execute, reminder: int, inbox_id: int) -> None:
    """Remember as which message a question was asked last."""
    execute("UPDATE reminders SET inbox_id = ? WHERE id = ?", (inbox_id, reminder))


def keep_delivered(execute: Execute, reminder: int, expires_at: int | None, now_ms: int) -> None:
    """Keep a reminder that comes no more, until it is done."""
    execute(
        "UPDATE reminders SET state = 'delivered', ended_at = ?, expires_at = ? WHERE id = ?",
        (now_ms, expires_at, reminder),
    )


def end(execute: Execute, reminder: int, now_ms: int) -> None:
    """Forget what a reminder says; it comes no more."""
    execute(
        "UPDATE reminders SET state = 'done', text = NULL, person_name = NULL,"
        " person_number = NULL, expires_at = NULL, ended_at = ? WHERE id = ?",
        (now_ms, reminder),
    )


def sent_as(execute: Execute, chat: ChatId, signal_timestamp: int) -> StoredReminder | None:
    """Return the reminder that a message of the bot was, by Signal's timestamp of it."""
    sql = (
        f"SELECT {COLUMNS} FROM reminders WHERE text IS NOT NULL AND outbox_id IN"  # noqa: S608
        " (SELECT id FROM outbox WHERE chat = ? AND signal_timestamp = ?)"
    )
    return next(map(stored, list(execute(sql, (chat, signal_timestamp)))), None)


def done(execute: Execute, reminder: StoredReminder, now_ms: int) -> None:
    """Mark as done what was delivered; a series goes on, without this occurrence."""
    if reminder.is_delivered:
        end(execute, reminder.id, now_ms)
    else:
        execute("UPDATE reminders SET outbox_id = NULL WHERE id = ?", (reminder.id,))


def forget_turn(execute: Execute, turn_id: int) -> None:
    """Forget what was asked for in a turn: its message was taken back, or reads otherwise."""
    execute("DELETE FROM reminders WHERE turn_id = ?", (turn_id,))


def hand_on(execute: Execute, turn_id: int, heir: int) -> None:
    """Let what was asked for in a turn belong to another one, which answers its question anew."""
    # Calls of two turns may have the same id; those of the earlier one are over.
    sql = "UPDATE reminders SET turn_id = ?, call_id = NULL WHERE turn_id = ?"
    execute(sql, (heir, turn_id))


def count_run(execute: Execute, inbox_id: int, *, has_failed: bool, now_ms: int) -> None:
    """Count what came of a question; one that has failed too often in a row is due at once.

    Then the alarm says that it is asked no more.
    """
    if not has_failed:
        execute("UPDATE reminders SET failures = 0 WHERE inbox_id = ?", (inbox_id,))
        return
    execute(
        "UPDATE reminders SET failures = failures + 1,"
        " due_at = iif(failures + 1 >= ?, ?, due_at) WHERE inbox_id = ? AND state = 'waiting'",
        (MAX_FAILURES, now_ms, inbox_id),
    )


def free_timestamp(execute: Execute, reminder: StoredReminder) -> int:
    """Return a timestamp for a question that is due: its time, or the next that is not taken."""
    ((timestamp,),) = execute(
        "SELECT max(?1, coalesce(max(timestamp) + 1, 0)) FROM inbox WHERE account = ?2"
        " AND author = ?3 AND kind = 'scheduled' AND timestamp >= ?1",
        (reminder.due_at, reminder.account, reminder.person),
    )
    return int(timestamp)


def are_in(execute: Execute, chat: ChatId) -> bool:
    """Whether anything is still to come in a chat."""
    sql = "SELECT 1 FROM reminders WHERE chat = ? AND state = 'waiting' LIMIT 1"
    return bool(list(execute(sql, (chat,))))


def set_back(execute: Execute, now_ms: int) -> None:
    """Let what was asked for by a clock that was ahead come as much later than now as was meant.

    What comes at a local time keeps its time of day, so it moves by whole days, and a series by
    whole weeks: by a clock that was some minutes ahead it was understood all the same.
    """
    rows = list(
        execute(
            "SELECT id, created_at - ?1, local_at IS NOT NULL, repeat IS NOT NULL FROM reminders"
            " WHERE created_at > ?1 AND state = 'waiting'",
            (now_ms,),
        )
    )
    for reminder, ahead_ms, is_local, is_series in rows:
        days = ahead_ms // WEEK_MS * 7 if is_series else round(ahead_ms / DAY_MS)
        execute(
            "UPDATE reminders SET created_at = ?1, due_at = due_at - ?2,"
            " local_at = strftime('%Y-%m-%dT%H:%M:%S', local_at, ?3) WHERE id = ?4",
            (now_ms, days * DAY_MS if is_local else ahead_ms, f"-{days} days", reminder),
        )


def close_debts(execute: Execute, now_ms: int) -> None:
    """End what was due by now in a store that is a copy: it may have been said since."""
    rows = list(
        execute(
            "SELECT id FROM reminders WHERE state = 'waiting' AND repeat IS NULL AND due_at <= ?",
            (now_ms,),
        )
    )
    for (reminder,) in rows:
        end(execute, reminder, now_ms)


def expire(execute: Execute, now_ms: int) -> None:
    """Forget what was delivered and has disappeared."""
    sql = "SELECT id FROM reminders WHERE expires_at <= ?"
    for (reminder,) in list(execute(sql, (now_ms,))):
        end(execute, reminder, now_ms)


def next_expiry(execute: Execute) -> int | None:
    """Return when the next delivered one disappears."""
    ((expires_at,),) = execute("SELECT min(expires_at) FROM reminders WHERE expires_at IS NOT NULL")
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget what ended before a time; return how many that were."""
    sql = (
        "DELETE FROM reminders WHERE id IN"
        " (SELECT id FROM reminders WHERE ended_at < ? LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (before, at_most))))


def stored(row: Row) -> StoredReminder:
    """Return what a row of `COLUMNS` says."""
    id_, number, person, account, chat, kind, text, local_at, repeat, due_at, zone, state, *more = (
        row
    )
    person_name, person_number, timer_ms, failures = more
    return StoredReminder(
        id_,
        number,
        person,
        account,
        ChatId.parse(chat),
        is_question=kind == "question",
        text=text or "",
        local_at=local_at,
        repeat=repeat,
        due_at=due_at,
        zone=zone,
        is_delivered=state == "delivered",
        person_name=person_name,
        person_number=person_number,
        timer_ms=timer_ms,
        failures=failures,
    )
