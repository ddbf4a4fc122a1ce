"""Requests to an attested model and their answers: hashes, and the results of signature checks."""

from collections.abc import Sequence
from typing import Final

from conversation_store import outbox
from conversation_store.connections import Row, Session
from conversation_store.models import (
    ChatId,
    ExchangeState,
    NewExchange,
    OutgoingMessage,
    StoredExchange,
)
from conversation_store.operations import Aggregate, reads, writes

SELECT: Final = (
    "SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind, words, model"
    " FROM exchanges WHERE"
)


class ExchangeStore(Aggregate):
    """Exchanges whose signatures are checked."""

    @reads
    def unchecked(self, db: Session, limit: int) -> tuple[StoredExchange, ...]:
        """Return exchanges of turns that have ended and are not checked yet, oldest first."""
        rows = db.run(
            f"{SELECT} state = 'waiting' AND NOT EXISTS"
            " (SELECT 1 FROM turns WHERE turns.id = turn_id AND turns.state = 'running')"
            " ORDER BY id LIMIT ?",
            limit,
        )
        return tuple(map(_exchange, rows))

    @reads
    def of_last_answer(self, db: Session, chat: ChatId) -> tuple[StoredExchange, ...]:
        """Return the exchanges of the last answer in a chat, in order."""
        rows = db.run(
            f"{SELECT} turn_id = (SELECT max(id) FROM turns"
            " WHERE chat = ? AND turns.state IN ('answered', 'failed')) ORDER BY id",
            chat,
        )
        return tuple(map(_exchange, rows))

    @writes
    def settle(
        self,
        db: Session,
        exchange: StoredExchange,
        state: ExchangeState,
        *,
        kind: str,
        message: str,
        warning: str | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store the result of a check, and return messages to send because of it.

        Args:
            exchange: nothing changes if it was settled before, or is gone.
            warning: sent after the turn's answer, once for all of its exchanges.
        """
        wrong = "SELECT 1 FROM exchanges WHERE turn_id = ? AND state = 'wrong'"
        was_warned = bool(db.run(wrong, exchange.turn_id))
        settled = db.run(
            "UPDATE exchanges SET state = ?, kind = ?, words = ?"
            " WHERE id = ? AND state = 'waiting' RETURNING id",
            *(state, kind, message, exchange.id),
        )
        if not settled or warning is None or was_warned:
            return ()
        turn_id, now = exchange.turn_id, self._now_ms()
        return tuple(
            outbox.follow_up(db, turn_id, ChatId.parse(chat), warning, now)
            for (chat,) in db.run("SELECT chat FROM inbox WHERE id = ?", turn_id)
        )


def add(db: Session, turn_id: int, exchanges: Sequence[NewExchange]) -> None:
    """Add unchecked exchanges of a turn."""
    for exchange in exchanges:
        db.insert(
            "exchanges",
            turn_id=turn_id,
            completion_id=exchange.completion_id,
            request_sha256=exchange.request_sha256,
            response_sha256=exchange.response_sha256,
            model=exchange.model,
            state="waiting",
        )


def purge(db: Session, at_most: int) -> int:
    """Delete checked exchanges that are older than every stored turn; return how many."""
    sql = (
        "DELETE FROM exchanges WHERE id IN (SELECT id FROM exchanges WHERE state != 'waiting'"
        " AND turn_id < coalesce((SELECT min(id) FROM turns), (SELECT max(turn_id) + 1 FROM"
        " exchanges)) LIMIT ?) RETURNING id"
    )
    return len(db.run(sql, at_most))


def _exchange(row: Row) -> StoredExchange:
    values = list(row)
    values[5] = ExchangeState(row[5])
    return StoredExchange(*values)
