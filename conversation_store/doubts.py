"""Sends with an unknown result, and the receipts that may settle them.

An answer is on disk before it is sent, and is marked afterwards. A process that dies in between
leaves it waiting, sent or not. So the waiting rows are in doubt after a start. The table `doubts`
holds these sends, sends whose reply was lost, and sends that ended in an error after which the
message may have arrived.
"""

import json
from collections.abc import Sequence
from typing import Final

from conversation_store import history, outbox
from conversation_store.connections import Session
from conversation_store.models import ChatId, Doubt, OutgoingMessage
from conversation_store.operations import Aggregate, reads_aside, writes, writes_later

KEPT_MS: Final = 86_400_000
"""Signal's apps delete a message for everyone within a day."""

FRESH_MS: Final = 3_600_000
"""Receipts younger than this may come before their row is marked."""

SETTLED_MS: Final = 60_000
"""After its last question, a waiting turn sends nothing more after this time."""

ELSEWHERE: Final = ""
"""Stands for a person at timestamps that prove nothing: the message is known."""


class DoubtStore(Aggregate):
    """Sends in doubt and receipts of phones."""

    @writes
    def load(self, db: Session) -> tuple[tuple[Doubt, ...], tuple[tuple[int, str], ...]]:
        """Return the sends in doubt at a start, before this process has sent anything.

        Returns:
            in addition, the timestamps that phones confirmed, each with the person.
        """
        now_ms = self._now_ms()
        waiting = _first_waiting(db, now_ms)
        if waiting:
            earliest = min(doubt.since for doubt in waiting)
            waiting += _removals(db, earliest, now_ms) + _running_turns(db, now_ms)
        for doubt in waiting:
            _note(db, doubt)
        sends = db.run(
            "SELECT outbox_id, doubts.chat, since, until,"
            " iif(state = 'sent', signal_timestamp, NULL), replaces NOT NULL"
            " FROM doubts LEFT JOIN outbox ON outbox.id = outbox_id WHERE until >= ?",
            now_ms - KEPT_MS,
        )
        confirmed = db.run(
            # The known timestamps may be many; `known` finds them when asked.
            "SELECT timestamp, person FROM confirmations WHERE person != ?",
            ELSEWHERE,
        )
        doubts = (Doubt(row, ChatId.parse(chat), *rest) for row, chat, *rest in sends)
        return tuple(doubts), tuple(confirmed)

    @reads_aside
    def known(self, db: Session, timestamps: Sequence[int]) -> frozenset[int]:
        """Return which of these timestamps belong to stored messages."""
        rows = db.run(
            "WITH asked AS (SELECT value FROM json_each(?))"
            " SELECT signal_timestamp FROM outbox WHERE signal_timestamp IN asked"
            " UNION SELECT progress_timestamp FROM turns WHERE progress_timestamp IN asked"
            " UNION SELECT signal_timestamp FROM questions WHERE signal_timestamp IN asked"
            " UNION SELECT timestamp FROM confirmations WHERE person = '' AND timestamp IN asked",
            json.dumps(list(timestamps)),
        )
        return frozenset(timestamp for (timestamp,) in rows)

    @writes_later
    def confirm(self, db: Session, timestamp: int, person: str) -> None:
        """Keep a receipt, for it comes only once."""
        db.run("INSERT OR IGNORE INTO confirmations VALUES (?, ?)", timestamp, person)

    @writes_later
    def note(self, db: Session, doubt: Doubt) -> None:
        """Note a send in doubt; does not wait for the disk."""
        _note(db, doubt)

    @writes
    def remove_copy(self, db: Session, part: int, copy: int) -> OutgoingMessage | None:
        """Store the deletion of a second copy, and return it to be sent.

        People see only one of two equal edits. Phones ignore edits of a version that was replaced,
        so for an edit the row takes the earlier timestamp, and nothing is deleted.

        Args:
            part: the message's row in the outbox.
            copy: Signal's timestamp of the copy.
        """
        db.run("INSERT OR IGNORE INTO confirmations VALUES (?, ?)", copy, ELSEWHERE)
        rows = db.run("SELECT chat, replaces NOT NULL FROM outbox WHERE id = ?", part)
        for chat, is_edit in rows:
            if not is_edit:
                return outbox.removal(db, ChatId.parse(chat), copy, self._now_ms())
            sql = "UPDATE outbox SET signal_timestamp = min(signal_timestamp, ?) WHERE id = ?"
            db.run(sql, copy, part)
        return None


def purge(db: Session, now_ms: int) -> None:
    """Delete doubts that are too old for a deletion, and receipts that no doubt can be about."""
    db.run("DELETE FROM doubts WHERE until < ?", now_ms - KEPT_MS)
    fresh = now_ms - FRESH_MS
    earliest = db.value(
        "SELECT min(?, coalesce((SELECT min(since) FROM doubts), ?),"
        " coalesce((SELECT min(created_at) FROM outbox WHERE state = 'waiting'), ?))",
        *(fresh, fresh, fresh),
    )
    db.run(
        "DELETE FROM confirmations WHERE timestamp > ? OR timestamp < ?",
        *(now_ms + FRESH_MS, earliest),
    )


def _note(db: Session, doubt: Doubt) -> None:
    place = (doubt.row, doubt.chat, doubt.since)
    db.run("DELETE FROM doubts WHERE outbox_id IS ? AND chat = ? AND since = ?", *place)
    db.run(
        "INSERT INTO doubts (outbox_id, chat, since, until)"
        " VALUES ((SELECT id FROM outbox WHERE id = ?), ?, ?, ?)",
        *(*place, doubt.until),
    )


def _first_waiting(db: Session, now_ms: int) -> list[Doubt]:
    """Return the first waiting part of each answer, without deletions.

    The bot sends parts one after the other, so only the first can be in doubt. Signal's timestamps
    grow, so it is younger than the parts before it. Earlier processes have doubts of their own.
    """
    rows = db.run(
        "SELECT id, chat, max(created_at, coalesce((SELECT max(signal_timestamp) + 1"
        "  FROM outbox AS earlier WHERE earlier.inbox_id = outbox.inbox_id"
        "  AND earlier.part < outbox.part AND earlier.state = 'sent'), 0),"
        " coalesce((SELECT max(until) FROM doubts WHERE outbox_id = outbox.id), 0))"
        " FROM outbox WHERE kind != 'removal' AND id IN"
        " (SELECT min(id) FROM outbox WHERE state = 'waiting' GROUP BY chat, inbox_id)"
        " ORDER BY id"
    )
    return [Doubt(row, ChatId.parse(chat), since, now_ms) for row, chat, since in rows]


def _removals(db: Session, earliest: int, now_ms: int) -> list[Doubt]:
    """Return the deletions of the bot's messages: their own timestamps are unknown."""
    rows = db.run(
        "SELECT chat, created_at FROM outbox"
        " WHERE kind = 'removal' AND (state = 'waiting' OR created_at >= ?)",
        earliest,
    )
    return [Doubt(None, ChatId.parse(chat), since, now_ms) for chat, since in rows]


def _running_turns(db: Session, now_ms: int) -> list[Doubt]:
    """Return the turns that ran tools: they may have sent progress or questions without a note."""
    rows = db.run(
        "SELECT chat, started_at, min(?1, coalesce((SELECT max(asked_at) FROM questions"
        f" WHERE questions.turn_id = turns.id AND turns.id IN ({history.SUSPENDED})) + ?2, ?1))"
        " FROM turns WHERE state = 'running' AND EXISTS"
        " (SELECT 1 FROM messages WHERE turn_id = turns.id AND role = 'tool')",
        *(now_ms, SETTLED_MS),
    )
    return [Doubt(None, ChatId.parse(chat), since, until) for chat, since, until in rows]
