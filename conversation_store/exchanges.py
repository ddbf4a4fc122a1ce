"""Requests to an attested model and their answers: their hashes, and what a signature said."""

from collections.abc import Sequence

from conversation_store.connections import Execute, Row
from conversation_store.models import ChatId, ExchangeState, NewExchange, StoredExchange


def add(execute: Execute, turn_id: int, exchanges: Sequence[NewExchange]) -> None:
    """Add exchanges of a turn, whose signatures are still to be checked."""
    for exchange in exchanges:
        execute(
            "INSERT INTO exchanges (turn_id, completion_id, request_sha256, response_sha256, state)"
            " VALUES (?, ?, ?, ?, 'waiting')",
            (turn_id, exchange.completion_id, exchange.request_sha256, exchange.response_sha256),
        )


def waiting(execute: Execute, limit: int) -> tuple[StoredExchange, ...]:
    """Return exchanges whose turn is over and whose signature is not checked, oldest first."""
    rows = list(
        execute(
            "SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind, words"
            " FROM exchanges WHERE state = 'waiting' AND NOT EXISTS"
            " (SELECT 1 FROM turns WHERE turns.id = turn_id AND turns.state = 'running')"
            " ORDER BY id LIMIT ?",
            (limit,),
        )
    )
    return tuple(_exchange(row) for row in rows)


def of_last_turn(execute: Execute, chat: ChatId) -> tuple[StoredExchange, ...]:
    """Return the exchanges of the last answer in a chat, in their order."""
    rows = list(
        execute(
            "SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind, words"
            " FROM exchanges WHERE turn_id = (SELECT max(id) FROM turns"
            " WHERE chat = ? AND turns.state IN ('answered', 'failed')) ORDER BY id",
            (chat,),
        )
    )
    return tuple(_exchange(row) for row in rows)


def settle(
    execute: Execute, exchange: StoredExchange, state: ExchangeState, kind: str, words: str
) -> bool:
    """Store what a signature said and return whether that is new."""
    rows = list(
        execute(
            "UPDATE exchanges SET state = ?, kind = ?, words = ? WHERE id = ? AND state = 'waiting'"
            " RETURNING id",
            (state, kind, words, exchange.id),
        )
    )
    return bool(rows)


def has_wrong(execute: Execute, turn_id: int) -> bool:
    """Whether a wrong signature is known of a turn."""
    rows = list(
        execute("SELECT 1 FROM exchanges WHERE turn_id = ? AND state = 'wrong'", (turn_id,))
    )
    return bool(rows)


def forget_of_turn(execute: Execute, turn_id: int) -> None:
    """Forget the exchanges of a turn."""
    execute("DELETE FROM exchanges WHERE turn_id = ?", (turn_id,))


def purge(execute: Execute, at_most: int) -> int:
    """Forget what was checked and is older than every turn that is kept; return how much."""
    sql = (
        "DELETE FROM exchanges WHERE id IN (SELECT id FROM exchanges WHERE state != 'waiting'"
        " AND turn_id < coalesce((SELECT min(id) FROM turns), (SELECT max(turn_id) + 1 FROM"
        " exchanges)) LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (at_most,))))


def _exchange(row: Row) -> StoredExchange:
    id_, turn_id, completion_id, request, response, state, kind, words = row
    return StoredExchange(
        id_, turn_id, completion_id, request, response, ExchangeState(state), kind, words
    )
