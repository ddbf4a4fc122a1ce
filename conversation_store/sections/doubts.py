"""What a start does not know: which messages were on their way when the last process ended.

An answer is on disk before it is sent and marked after. A process that dies in between leaves it
unmarked, sent or not. Nothing is written here on the way of an answer: what may have been sent
follows from the rows that wait.
"""

import json
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from conversation_store.connections import Execute
from conversation_store.models import ChatId, Interrupted, Resent, SendsInDoubt
from conversation_store.outgoing import MACHINE_MS
from conversation_store.sections.section import Section, reads, reads_aside, writes, writes_later
from conversation_store.suspended import SUSPENDED

KEPT_MS: Final = 86_400_000
"""How long a copy may be deleted: Signal's apps let a message be deleted for everyone for a day."""

FRESH_MS: Final = 3_600_000
"""A receipt that is younger may come before the row that it is about is marked."""

LATE_MS: Final = 60_000
"""How long signal-cli may take to begin with what it is asked for."""

MESSAGES_OF_A_TURN: Final = 12
"""How many messages of a turn a kill may leave on their way, or not noted yet."""

MEASURED_ROWS: Final = 100
"""The latest messages, which show how far signal-cli's clock is behind."""

JITTER_MS: Final = 100
"""How much less than usual a message may take to reach signal-cli."""

MAX_BEHIND_MS: Final = 10_000
"""A clock that was further behind has been set since."""

SETTLED_MS: Final = 60_000
"""After its last question a turn is at rest."""

_QUEUED: Final = "min(created_at, coalesce(queued_at, created_at))"
"""Since when a message may have been sent, whichever clock was ahead."""

ELSEWHERE: Final = ""
"""Stands for a person at a timestamp that proves nothing more."""


class DoubtStore(Section):
    """What a start does not know about the messages of earlier processes."""

    @reads_aside
    def load(self, execute: Execute, now_ms: int, *, reaction_ms: int | None) -> SendsInDoubt:
        """Return what a start does not know about the messages of earlier processes.

        Args:
            execute: runs a statement.
            now_ms: the time by signal-cli's clock; this process has sent nothing before it.
            reaction_ms: how long after a message the bot's reaction to it may be sent; None where
                it gives none.
        """
        behind_ms = _clock_behind(execute)
        waiting, others = _first_waiting(execute, now_ms, behind_ms)
        waiting = [replace(one, times=1 + _times_unnamed(execute, one.id)) for one in waiting]
        of_turns = [replace(one, since=one.since - behind_ms) for one in _progress(execute, now_ms)]
        if waiting:
            earliest = min(one.since for one in waiting)
            others += _deletions(execute, earliest, now_ms)
            others += _unnamed(execute, earliest, {one.id for one in waiting})
            if reaction_ms is not None:
                others += _reactions(execute, earliest, reaction_ms)
            others = [*of_turns, *(replace(one, since=one.since - behind_ms) for one in others)]
        return SendsInDoubt(
            waiting=tuple(waiting),
            others=tuple(others),
            of_turns=tuple(of_turns),
            resent=_resent(execute, now_ms),
            confirmed=tuple(
                # Of what proves nothing more there may be a lot; `known` finds it when asked for.
                execute(
                    "SELECT timestamp, person FROM confirmations WHERE person != ?", (ELSEWHERE,)
                )
            ),
        )

    @reads_aside
    def resent(self, execute: Execute, now_ms: int) -> tuple[Resent, ...]:
        """Return the messages of which there may be other copies that can still be deleted."""
        return _resent(execute, now_ms)

    @reads
    def known(self, execute: Execute, timestamps: Sequence[int]) -> frozenset[int]:
        """Return those of some timestamps that belong to messages whose sending is stored."""
        rows = execute(
            "WITH asked AS (SELECT value FROM json_each(?))"
            " SELECT signal_timestamp FROM outbox WHERE signal_timestamp IN asked"
            " UNION SELECT progress_timestamp FROM turns WHERE progress_timestamp IN asked"
            " UNION SELECT signal_timestamp FROM approvals WHERE signal_timestamp IN asked"
            " UNION SELECT signal_timestamp FROM questions WHERE signal_timestamp IN asked"
            " UNION SELECT timestamp FROM confirmations WHERE person = '' AND timestamp IN asked",
            (json.dumps(list(timestamps)),),
        )
        return frozenset(timestamp for (timestamp,) in rows)

    @writes_later
    def confirm(self, execute: Execute, confirmed: Sequence[tuple[int, str]]) -> None:
        """Keep what phones confirmed, for a receipt comes only once; does not wait for the disk."""
        _confirm(execute, confirmed)

    @writes_later
    def note_unnamed(self, execute: Execute, sending: Interrupted) -> None:
        """Remember a message that may have been sent without anybody's telling its timestamp.

        Does not wait for the disk. `until` is when its sending ended; signal-cli may be late.
        """
        _note_unnamed(execute, replace(sending, until=sending.until + LATE_MS))

    @writes
    def expect_copy(self, execute: Execute, sending: Interrupted) -> None:
        """Remember, before a message is sent again, that there may be more copies of it."""
        expected = list(
            execute(
                "INSERT INTO doubts (outbox_id, since, until, copies)"
                " SELECT id, ?, ?, ? FROM outbox WHERE id = ? AND state = 'waiting'"
                " ON CONFLICT (outbox_id) DO UPDATE"
                " SET until = excluded.until, copies = copies + excluded.copies"
                " RETURNING outbox_id",
                (sending.since, sending.until, sending.times, sending.id),
            )
        )
        if expected:
            execute("DELETE FROM unnamed_sends WHERE outbox_id = ?", (sending.id,))
        else:
            _note_unnamed(execute, sending)

    @writes
    def expect_deletion(self, execute: Execute, part: int, *, since_ms: int, now_ms: int) -> None:
        """Remember, before a copy is deleted, that phones will confirm the deletion as well.

        Args:
            execute: runs a statement.
            part: the message's row in the outbox.
            since_ms: the earliest timestamp that the deletion can have.
            now_ms: the time.
        """
        execute(
            "UPDATE doubts SET deletions = deletions + 1,"
            " deleted_since = coalesce(deleted_since, ?), deleted_until = ? WHERE outbox_id = ?",
            (since_ms, now_ms + LATE_MS, part),
        )

    @writes
    def copy_found(self, execute: Execute, part: int, *, copy: int, standing: int) -> None:
        """Remember which copy of a message people see.

        Args:
            execute: runs a statement.
            part: the message's row in the outbox.
            copy: Signal's timestamp that was not known; nothing else follows from it from now on.
            standing: Signal's timestamp of the copy that stays.
        """
        _confirm(execute, [(copy, ELSEWHERE)])
        execute("UPDATE outbox SET signal_timestamp = ? WHERE id = ?", (standing, part))


def note_if_forgotten(execute: Execute, part: int, timestamp: int) -> None:
    """Know the timestamp of a message that was forgotten while it was on its way."""
    execute(
        "INSERT OR IGNORE INTO confirmations SELECT ?, ?"
        " WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE id = ?)",
        (timestamp, ELSEWHERE, part),
    )


def extend(execute: Execute, sending: Interrupted) -> None:
    """Let the copies that are remembered of a message include those of the last process."""
    execute("UPDATE doubts SET until = ? WHERE outbox_id = ?", (sending.until, sending.id))


def purge(execute: Execute, now_ms: int) -> None:
    """Forget copies that are too old to be deleted, and what no doubt can be about.

    Their times are by the machine's clock; whichever clock is ahead, too little is forgotten.
    """
    ((machine_ms,),) = execute(f"SELECT {MACHINE_MS}")
    earlier_ms, later_ms = sorted((now_ms, machine_ms))
    execute("DELETE FROM doubts WHERE until < ?", (earlier_ms - KEPT_MS,))
    ((earliest,),) = execute(
        "SELECT min(?, coalesce((SELECT min(since) FROM doubts), ?),"  # noqa: S608
        f" coalesce((SELECT min({_QUEUED}) FROM outbox WHERE state = 'waiting'), ?))",
        (earlier_ms - FRESH_MS,) * 3,
    )
    execute(
        "DELETE FROM confirmations WHERE timestamp > ? OR timestamp < ?",
        (later_ms + FRESH_MS, earliest),
    )
    execute("DELETE FROM unnamed_sends WHERE until < ?", (earliest,))


def _resent(execute: Execute, now_ms: int) -> tuple[Resent, ...]:
    rows = list(
        execute(
            "SELECT outbox_id, chat, since, until, iif(state = 'sent', signal_timestamp, NULL),"
            " replaces NOT NULL, copies FROM doubts JOIN outbox ON outbox.id = outbox_id"
            " WHERE until >= ?",
            (now_ms - KEPT_MS,),
        )
    )
    return tuple(
        Resent(Interrupted(id_, ChatId.parse(chat), since, until), timestamp, bool(is_edit), copies)
        for id_, chat, since, until, timestamp, is_edit, copies in rows
    )


def _confirm(execute: Execute, confirmed: Sequence[tuple[int, str]]) -> None:
    for timestamp, person in confirmed:
        execute("INSERT OR IGNORE INTO confirmations VALUES (?, ?)", (timestamp, person))


def _note_unnamed(execute: Execute, sending: Interrupted) -> None:
    execute(
        "INSERT INTO unnamed_sends (outbox_id, chat, since, until, times) VALUES (?, ?, ?, ?, ?)",
        (sending.id, sending.chat, sending.since, sending.until, sending.times),
    )


def _clock_behind(execute: Execute) -> int:
    """Return how many ms signal-cli's clock may be behind the bot's.

    A message is sent after it is stored, so one with an earlier timestamp shows it.
    """
    ((behind_ms,),) = execute(
        "SELECT coalesce(max(queued - signal_timestamp), 0) FROM"  # noqa: S608
        f" (SELECT {_QUEUED} AS queued, signal_timestamp FROM outbox"
        "  WHERE state = 'sent' AND kind != 'removal' ORDER BY id DESC LIMIT ?)",
        (MEASURED_ROWS,),
    )
    return int(behind_ms) + JITTER_MS if behind_ms > 0 else 0


def _first_waiting(
    execute: Execute, now_ms: int, behind_ms: int
) -> tuple[list[Interrupted], list[Interrupted]]:
    """Return the first part that waits of each answer, and those that only delete a message.

    signal-cli's timestamps grow. So a part is younger than the parts before it and than the last
    sign of progress of its turn, whatever the two clocks say. By a clock that is behind, what this
    process sends may have a timestamp from before its start, so the part's is earlier than that.
    """
    rows = list(
        execute(
            f"SELECT id, kind, chat, max({_QUEUED} - ?,"  # noqa: S608
            " coalesce((SELECT max(signal_timestamp) + 1 FROM outbox AS earlier"
            "  WHERE earlier.inbox_id = outbox.inbox_id AND earlier.part < outbox.part"
            "  AND earlier.state = 'sent'), 0),"
            " coalesce((SELECT progress_timestamp + 1 FROM turns"
            "  WHERE turns.id = outbox.inbox_id), 0))"
            " FROM outbox WHERE id IN"
            " (SELECT min(id) FROM outbox WHERE state = 'waiting' GROUP BY chat, inbox_id)"
            " ORDER BY id",
            (min(behind_ms, MAX_BEHIND_MS),),
        )
    )
    waiting, removals = [], []
    for id_, kind, chat, since in rows:
        if kind == "removal":
            removals.append(Interrupted(None, ChatId.parse(chat), since, now_ms))
        else:
            waiting.append(Interrupted(id_, ChatId.parse(chat), since, now_ms - behind_ms))
    return waiting, removals


def _times_unnamed(execute: Execute, part: int | None) -> int:
    """Return how often a message that waits may have been sent, before its last try."""
    ((times,),) = execute(
        "SELECT coalesce(sum(times), 0) FROM unnamed_sends WHERE outbox_id = ?", (part,)
    )
    return int(times)


def _unnamed(
    execute: Execute, earliest: int, waiting: AbstractSet[int | None]
) -> list[Interrupted]:
    """Return what may have been sent of messages that do not wait any more, or never did."""
    rows = list(
        execute(
            "SELECT outbox_id, chat, since, until, times FROM unnamed_sends WHERE until >= ?",
            (earliest,),
        )
    )
    return [
        Interrupted(None, ChatId.parse(chat), since, until, times)
        for part, chat, since, until, times in rows
        if part is None or part not in waiting
    ]


def _progress(execute: Execute, now_ms: int) -> list[Interrupted]:
    """Return the messages of turns that were running: what they sent may not be noted.

    One that waits for a person sends nothing more soon after it has asked.
    """
    rows = list(
        execute(
            "SELECT chat, started_at, (SELECT max(asked_at) FROM questions"  # noqa: S608
            f" WHERE questions.turn_id = turns.id AND turns.id IN ({SUSPENDED}))"
            " FROM turns WHERE state = 'running' AND EXISTS"
            " (SELECT 1 FROM messages WHERE turn_id = turns.id AND role = 'tool')"
        )
    )
    return [
        Interrupted(
            None,
            ChatId.parse(chat),
            since,
            now_ms if asked_at is None else min(now_ms, asked_at + SETTLED_MS),
            MESSAGES_OF_A_TURN,
        )
        for chat, since, asked_at in rows
    ]


def _deletions(execute: Execute, earliest: int, now_ms: int) -> list[Interrupted]:
    """Return the deletions of the bot's own messages; their own timestamps are not stored."""
    removals = list(
        execute(
            f"SELECT chat, {_QUEUED} FROM outbox"  # noqa: S608
            f" WHERE {_QUEUED} >= ? AND kind = 'removal' AND state = 'sent'",
            (earliest,),
        )
    )
    of_copies = list(
        execute(
            "SELECT chat, deleted_since, deleted_until, deletions FROM doubts"
            " JOIN outbox ON outbox.id = outbox_id WHERE deleted_until >= ?",
            (earliest,),
        )
    )
    found = [Interrupted(None, ChatId.parse(chat), since, now_ms) for chat, since in removals]
    for chat, since, until, times in of_copies:
        found.append(Interrupted(None, ChatId.parse(chat), since, until, times))
    return found


def _reactions(execute: Execute, earliest: int, within_ms: int) -> list[Interrupted]:
    rows = list(
        execute(
            "SELECT chat, received_at FROM inbox WHERE received_at >= ?", (earliest - within_ms,)
        )
    )
    return [Interrupted(None, ChatId.parse(chat), at, at + within_ms) for chat, at in rows]
