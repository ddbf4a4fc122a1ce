"""Who called which tool and what came of it, append-only until retention takes it."""

from conversation_store.connections import Execute
from conversation_store.models import AuditEntry


def append(execute: Execute, entry: AuditEntry, open_call: int | None) -> None:
    """Add one entry; part of the transaction that stores the call's result.

    Args:
        execute: runs a statement.
        entry: what to add.
        open_call: row of the call, by which is found who allowed it.
    """
    execute(
        "INSERT INTO audit (at, chat, author, turn_id, tool, arguments_sha256, outcome,"
        " duration_ms, arguments, allowed_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?,"
        " (SELECT decided_by FROM approvals WHERE id = ? AND state = 'begun'))",
        (
            entry.at,
            entry.chat,
            entry.author,
            entry.turn_id,
            entry.tool,
            entry.arguments_sha256,
            entry.outcome,
            entry.duration_ms,
            entry.arguments,
            open_call,
        ),
    )


def forget_arguments(execute: Execute, turn_id: int) -> None:
    """Forget what the calls of a turn were about; that they ran stays known."""
    execute(
        "UPDATE audit SET arguments = NULL WHERE turn_id = ? AND arguments IS NOT NULL", (turn_id,)
    )


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget entries older than a time; return how many that were."""
    sql = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ? LIMIT ?) RETURNING id"
    return len(list(execute(sql, (before, at_most))))
