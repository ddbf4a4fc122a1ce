"""Reminders: what waits for its time, what was delivered, and until when that is kept.

What waits is kept however old its chat's other messages are. What was delivered stays a while, so
that it can be moved or marked as done: as long as the retention says, or its chat's timer.

A reminder goes with any of the turns that it came from, and so does what holds its words: the turns
that were told it or answer its question, also when the reminder itself is over.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from conversation_store import fact_sources
from conversation_store.connections import Execute, Row
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    DueReminder,
    FurtherDate,
    StoredReminder,
)

COLUMNS: Final = (
    "reminders.id, number, reminders.person, account, chat, kind, text, local_at, repeat, due_at,"
    " (SELECT zone FROM clocks WHERE clocks.person = reminders.person), state, person_name,"
    " person_number, timer_ms, failures"
)

DAY_MS: Final = 86_400_000
WEEK_MS: Final = 7 * DAY_MS

MAX_FAILURES: Final = 3
"""A question that nothing comes of so often in a row is asked no more."""


@dataclass(frozen=True, slots=True)
class Holders:
    """What holds the words of reminders that are forgotten.

    Attributes:
        told: turns that were told them.
        runs: turns that answer their questions.
        unsaid: messages on their way out, or given up.
    """

    told: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()
    unsaid: tuple[int, ...] = ()


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
    execute("UPDATE outbox SET reminder_id = ? WHERE id = ?", (reminder, outbox_id))


def was_asked_as(execute: Execute, reminder: int, inbox_id: int) -> None:
    """Remember as which message a question was asked last."""
    execute("UPDATE reminders SET inbox_id = ? WHERE id = ?", (inbox_id, reminder))
    execute(
        "INSERT INTO reminded (turn_id, reminder_id, is_run) VALUES (?, ?, 1)", (inbox_id, reminder)
    )


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


def cancel(
    execute: Execute,
    reminder: StoredReminder,
    *,
    turn_id: int | None,
    call: str | None,
    now_ms: int,
) -> None:
    """End a reminder whose person does not want it; a call that does it is known by its turn."""
    tell(execute, (reminder,), turn_id, now_ms)
    end(execute, reminder.id, now_ms)
    sql = "UPDATE reminders SET cancelled_in = ?, cancelled_by = ? WHERE id = ?"
    execute(sql, (turn_id, call, reminder.id))


def cancelled_by(
    execute: Execute, person: str, number: int, turn_id: int | None, call: str | None
) -> StoredReminder | None:
    """Return what a call has cancelled before."""
    sql = (
        f"SELECT {COLUMNS} FROM reminders WHERE reminders.person = ? AND number = ?"  # noqa: S608
        " AND cancelled_in = ? AND cancelled_by = ?"
    )
    return next(map(stored, list(execute(sql, (person, number, turn_id, call)))), None)


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


def comes_from(execute: Execute, reminder: int, turn_id: int, text: str) -> None:
    """Let a reminder go with the turn that sets it, and with what that was told and sets anew.

    That is a reminder with most of its words; or one that the turn has cancelled, where people have
    not written most of these words in it.
    """
    words = fact_sources.telling_words(text)
    is_own = fact_sources.says_half(execute, turn_id, words)
    told = list(
        execute(
            "SELECT id, text FROM reminders JOIN reminded ON reminder_id = id"
            " WHERE reminded.turn_id = ? AND id != ?",
            (turn_id, reminder),
        )
    )
    moved = [
        earlier
        for earlier, said in told
        if (not is_own if said is None else fact_sources.shared(words, said) * 2 > len(words))
    ]
    execute(
        "INSERT OR IGNORE INTO reminders_from (turn_id, reminder_id) SELECT ?1, ?2 UNION"
        " SELECT turn_id, ?2 FROM reminders_from"
        " WHERE reminder_id IN (SELECT value FROM json_each(?3))",
        (turn_id, reminder, json.dumps(moved)),
    )


def tell(
    execute: Execute, told: Iterable[StoredReminder], turn_id: int | None, now_ms: int
) -> None:
    """Let a turn go with reminders whose words it is told, and no later than they disappear."""
    for reminder in told:
        execute(
            "INSERT OR IGNORE INTO reminded (turn_id, reminder_id, is_run)"
            " SELECT id, ?, 0 FROM inbox WHERE id = ?",
            (reminder.id, turn_id),
        )
        execute(
            "UPDATE turns SET expires_at = min(coalesce(expires_at, until), until) FROM"
            " (SELECT coalesce(expires_at, ?1 + timer_ms) AS until FROM reminders WHERE id = ?2)"
            " WHERE turns.id = ?3 AND until IS NOT NULL",
            (now_ms, reminder.id, turn_id),
        )


def tell_quoted(
    execute: Execute, pieces: Sequence[AcceptedMessage], turn_id: int, now_ms: int
) -> None:
    """Let a turn go with the reminders that its messages reply to."""
    for piece in pieces:
        quote = piece.message.quote
        if quote is not None and quote.by_bot and quote.timestamp is not None:
            quoted = sent_as(execute, piece.message.chat, quote.timestamp)
            tell(execute, () if quoted is None else (quoted,), turn_id, now_ms)


def waiting_runs(execute: Execute, turn_id: int) -> list[int]:
    """Return the questions that owe an answer, of those that the bot asks itself by a turn."""
    rows = execute(
        "SELECT DISTINCT inbox.id FROM reminders_from JOIN reminded USING (reminder_id)"
        " JOIN inbox ON inbox.id = reminded.turn_id"
        " WHERE reminders_from.turn_id = ? AND is_run AND inbox.state = 'waiting'",
        (turn_id,),
    )
    return [run for (run,) in rows]


def forget_from(execute: Execute, turn_id: int) -> Holders:
    """Forget what came from a turn: its message was taken back, or reads otherwise.

    Returns:
        the turns that hold words of it.
    """
    sql = "SELECT reminder_id FROM reminders_from WHERE turn_id = ?"
    return _forget(execute, list(execute(sql, (turn_id,))))


def _forget(execute: Execute, rows: Iterable[Row]) -> Holders:
    ids = json.dumps([reminder for (reminder,) in rows])
    if ids == "[]":
        return Holders()
    holders = _holders(execute, ids)
    unsaid = execute(
        "SELECT id FROM outbox WHERE state != 'sent'"
        " AND reminder_id IN (SELECT value FROM json_each(?))",
        (ids,),
    )
    holders = replace(holders, unsaid=tuple(part for (part,) in unsaid))
    # After `!clear` nothing else knows of the calls that set them.
    execute(
        "UPDATE audit SET arguments = NULL WHERE arguments IS NOT NULL AND turn_id IN"
        " (SELECT turn_id FROM reminders WHERE id IN (SELECT value FROM json_each(?)))",
        (ids,),
    )
    execute("DELETE FROM reminders WHERE id IN (SELECT value FROM json_each(?))", (ids,))
    return holders


def _holders(execute: Execute, reminders: str) -> Holders:
    """Return the turns that hold words of reminders, whose rows are a list in JSON."""
    holders = list(
        execute(
            "SELECT turn_id, max(is_run) FROM reminded"
            " WHERE reminder_id IN (SELECT value FROM json_each(?)) GROUP BY turn_id",
            (reminders,),
        )
    )
    return Holders(
        tuple(turn for turn, is_run in holders if not is_run),
        tuple(turn for turn, is_run in holders if is_run),
    )


def hand_on(execute: Execute, turn_id: int, heir: int) -> None:
    """Let what was asked for in a turn belong to another one, which answers its question anew."""
    # Calls of two turns may have the same id; those of the earlier one are over.
    sql = "UPDATE reminders SET turn_id = ?, call_id = NULL WHERE turn_id = ?"
    execute(sql, (heir, turn_id))
    execute("UPDATE OR REPLACE reminders_from SET turn_id = ? WHERE turn_id = ?", (heir, turn_id))
    execute("UPDATE OR REPLACE reminded SET turn_id = ? WHERE turn_id = ?", (heir, turn_id))


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


def purge(execute: Execute, before: int, at_most: int) -> tuple[int, Holders]:
    """Forget what ended before a time.

    Returns:
        how many those were, and the turns that hold words of them.
    """
    rows = list(execute("SELECT id FROM reminders WHERE ended_at < ? LIMIT ?", (before, at_most)))
    ids = json.dumps([reminder for (reminder,) in rows])
    holders = _holders(execute, ids)
    execute("DELETE FROM reminders WHERE id IN (SELECT value FROM json_each(?))", (ids,))
    return len(rows), holders


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
