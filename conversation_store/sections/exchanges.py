"""Requests to an attested model and their answers: their hashes, and what a signature said."""

from conversation_store import outgoing
from conversation_store.connections import Execute, Row
from conversation_store.models import ChatId, ExchangeState, OutgoingMessage, StoredExchange
from conversation_store.sections.section import Section, reads, writes


class ExchangeStore(Section):
    """Requests to an attested model and their answers, whose signatures are checked."""

    @reads
    def unchecked(self, execute: Execute, limit: int) -> tuple[StoredExchange, ...]:
        """Return exchanges of finished turns whose signature is not checked, oldest first."""
        rows = list(
            execute(
                "SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind,"
                " words, model FROM exchanges WHERE state = 'waiting' AND NOT EXISTS"
                " (SELECT 1 FROM turns WHERE turns.id = turn_id AND turns.state = 'running')"
                " ORDER BY id LIMIT ?",
                (limit,),
            )
        )
        return tuple(_exchange(row) for row in rows)

    @reads
    def of_last_answer(self, execute: Execute, chat: ChatId) -> tuple[StoredExchange, ...]:
        """Return the exchanges behind the last answer in a chat, in their order."""
        rows = list(
            execute(
                "SELECT id, turn_id, completion_id, request_sha256, response_sha256, state, kind,"
                " words, model FROM exchanges WHERE turn_id = (SELECT max(id) FROM turns"
                " WHERE chat = ? AND turns.state IN ('answered', 'failed')) ORDER BY id",
                (chat,),
            )
        )
        return tuple(_exchange(row) for row in rows)

    @writes
    def settle(
        self,
        execute: Execute,
        exchange: StoredExchange,
        state: ExchangeState,
        *,
        kind: str,
        message: str,
        warning: str | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store what a signature said; return what is to be sent because of it.

        Args:
            execute: runs a statement.
            exchange: which; one that is settled already, or forgotten, stays as it is.
            state: what was found.
            kind: of the signature.
            message: what that means.
            warning: sent behind the turn's answer, once for all of its exchanges.
        """
        wrong = "SELECT 1 FROM exchanges WHERE turn_id = ? AND state = 'wrong'"
        was_warned = bool(list(execute(wrong, (exchange.turn_id,))))
        settled = list(
            execute(
                "UPDATE exchanges SET state = ?, kind = ?, words = ?"
                " WHERE id = ? AND state = 'waiting' RETURNING id",
                (state, kind, message, exchange.id),
            )
        )
        if not settled or warning is None or was_warned:
            return ()
        chats = list(execute("SELECT chat FROM inbox WHERE id = ?", (exchange.turn_id,)))
        return tuple(
            outgoing.follow_up(
                execute,
                inbox_id=exchange.turn_id,
                chat=ChatId.parse(chat),
                text=warning,
                now_ms=self._context.now_ms(),
            )
            for (chat,) in chats
        )


def _exchange(row: Row) -> StoredExchange:
    id_, turn_id, completion_id, request, response, state, kind, message, model = row
    return StoredExchange(
        id_, turn_id, completion_id, request, response, ExchangeState(state), kind, message, model
    )
