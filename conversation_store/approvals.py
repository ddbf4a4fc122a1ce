"""Questions to people about calls with side effects, one for each such call.

Asked at most once, decided at most once, and begun at most once: every change of state is
conditional on the state before it.
"""

from conversation_store.connections import Execute, Row
from conversation_store.models import ApprovalState, ChatId, StoredApproval


def open_or_find(
    execute: Execute, open_call: int, *, chat: ChatId, asker: str, fingerprint: str
) -> StoredApproval:
    """Return the question about an open call, made now if there is none yet."""
    execute(
        "INSERT INTO approvals (id, chat, asker, fingerprint, state) VALUES (?, ?, ?, ?, 'open')"
        " ON CONFLICT DO NOTHING",
        (open_call, chat, asker, fingerprint),
    )
    (row,) = execute(
        "SELECT id, chat, asker, fingerprint, state, signal_timestamp, expires_at"
        " FROM approvals WHERE id = ?",
        (open_call,),
    )
    return _approval(row)


def mark_asked(execute: Execute, approval: int, signal_timestamp: int, expires_at: int) -> None:
    """Remember the question's message, and until when its answer counts."""
    execute(
        "UPDATE approvals SET signal_timestamp = ?, expires_at = ? WHERE id = ?",
        (signal_timestamp, expires_at, approval),
    )


def decide(
    execute: Execute, approval: int, state: ApprovalState, *, by: str | None, now_ms: int
) -> ApprovalState | None:
    """Decide an open question; return how it is decided now, None if it is gone."""
    execute(
        "UPDATE approvals SET state = ?, decided_by = ?, decided_at = ?"
        " WHERE id = ? AND state = 'open'",
        (state, by, now_ms, approval),
    )
    rows = list(execute("SELECT state FROM approvals WHERE id = ?", (approval,)))
    return next((ApprovalState(found) for (found,) in rows), None)


def begin(execute: Execute, open_call: int) -> None:
    """Remember that an allowed call is begun."""
    execute("UPDATE approvals SET state = 'begun' WHERE id = ? AND state = 'yes'", (open_call,))


def close_of_turn(execute: Execute, turn: int) -> None:
    """Take no more answers for a turn that ends."""
    execute(
        "UPDATE approvals SET state = 'silence' WHERE state = 'open'"
        " AND id IN (SELECT id FROM messages WHERE turn_id = ?)",
        (turn,),
    )


def waiting(execute: Execute) -> tuple[StoredApproval, ...]:
    """Return the questions that were sent and have no answer."""
    rows = list(
        execute(
            "SELECT id, chat, asker, fingerprint, state, signal_timestamp, expires_at"
            " FROM approvals WHERE state = 'open' AND signal_timestamp IS NOT NULL ORDER BY id"
        )
    )
    return tuple(_approval(row) for row in rows)


def _approval(row: Row) -> StoredApproval:
    id_, chat, asker, fingerprint, state, signal_timestamp, expires_at = row
    return StoredApproval(
        id_,
        ChatId.parse(chat),
        asker,
        fingerprint,
        ApprovalState(state),
        signal_timestamp,
        expires_at,
    )
