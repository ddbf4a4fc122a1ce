"""Lists of the data that this machine sent for each turn, shown by `!sent`."""

from functools import partial
from typing import Final, NamedTuple

from conversation_store.connections import Session
from conversation_store.database import Aggregate, reads, writes_later
from conversation_store.models import ChatId

WITHIN_SECONDS: Final = 0.05
"""How long an entry waits for another write, to share its commit."""

NOTE_SQL: Final = """
    INSERT INTO outgoing (turn_id, number, kind, target, detail, is_proven, requests, bytes)
    SELECT id, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM turns WHERE id = ?1
    ON CONFLICT DO UPDATE SET requests = requests + excluded.requests,
        bytes = bytes + excluded.bytes
"""


class Outgoing(NamedTuple):
    """Data that left for a turn, in one request or in several alike; see `tools.ledger`."""

    kind: str
    target: str
    detail: str
    is_proven: int
    requests: int
    bytes: int


AUDIT_SQL: Final = """
    INSERT INTO audit (at, chat, author, turn_id, tool, arguments_sha256, outcome, duration_ms)
    SELECT ?2, chat, author, id, ?3, ?4, ?5, ?6 FROM inbox WHERE id = ?1
"""


class OutgoingStore(Aggregate):
    """The lists of all turns."""

    @writes_later
    def audit(
        self, db: Session, turn_id: int, what: str, sha256: str, *, outcome: str, duration_ms: int
    ) -> None:
        """Add a request for a turn, which no tool has made, to the audit; waits for nothing.

        Args:
            sha256: of what was sent, in hex.
        """
        db.run(AUDIT_SQL, turn_id, self._now_ms(), what, sha256, outcome, duration_ms)

    def note(self, turn_id: int, entry: Outgoing) -> None:
        """Add an entry to the list of a turn, without waiting for the disk."""
        self._database.write_later(partial(_note, turn_id=turn_id, entry=entry), WITHIN_SECONDS)

    @reads
    def of_turn(self, db: Session, turn_id: int) -> tuple[Outgoing, ...]:
        """Return the list of a turn, oldest first."""
        sql = (
            "SELECT kind, target, detail, is_proven, requests, bytes FROM outgoing"
            " WHERE turn_id = ? ORDER BY number"
        )
        return tuple(Outgoing(*row) for row in db.run(sql, turn_id))

    @reads
    def answered_as(self, db: Session, chat: ChatId, timestamp: int) -> tuple[int, str] | None:
        """Return the turn that a message of the bot answers, and the ACI of its asker."""
        rows = db.run(
            "SELECT inbox.id, author FROM outbox JOIN inbox ON inbox.id = inbox_id"
            " WHERE outbox.chat = ? AND signal_timestamp = ? LIMIT 1",
            *(chat, timestamp),
        )
        return rows[0] if rows else None


def _note(db: Session, turn_id: int, entry: Outgoing) -> None:
    number = db.value(
        "SELECT coalesce(max(number), 0) + 1 FROM outgoing WHERE turn_id = ?", turn_id
    )
    db.run(NOTE_SQL, turn_id, number, *entry)
