"""Questions to people about calls with side effects, one for each such call.

Asked at most once, decided at most once, and begun at most once: every change of state is
conditional on the state before it.
"""

from conversation_store import inbox, turns
from conversation_store.connections import Execute, Row
from conversation_store.models import AcceptedMessage, ApprovalState, ChatId, StoredApproval
from conversation_store.sections.section import Section, reads, writes


class ApprovalStore(Section):
    """Questions to people, each asked, decided and acted on once."""

    @writes
    def find_or_open(
        self,
        execute: Execute,
        turn_id: int,
        tool_call_id: str,
        *,
        chat: ChatId,
        asker: str,
        fingerprint: str,
    ) -> StoredApproval | None:
        """Return the question about an open call, made now if there is none yet.

        Args:
            execute: runs a statement.
            turn_id: the turn.
            tool_call_id: the call; None is returned when it is not open.
            chat: where to ask.
            asker: ACI of the person that the call is made for.
            fingerprint: of the call; the one that is stored counts.
        """
        open_call = turns.open_call(execute, turn_id, tool_call_id)
        if open_call is None:
            return None
        execute(
            "INSERT INTO approvals (id, chat, asker, fingerprint, state)"
            " VALUES (?, ?, ?, ?, 'open') ON CONFLICT DO NOTHING",
            (open_call, chat, asker, fingerprint),
        )
        (row,) = execute(
            "SELECT id, chat, asker, fingerprint, state, signal_timestamp, expires_at"
            " FROM approvals WHERE id = ?",
            (open_call,),
        )
        return _approval(row)

    @writes
    def mark_asked(
        self, execute: Execute, approval: int, signal_timestamp: int, expires_at: int
    ) -> None:
        """Remember the question's message, and until when (ms) its answer counts."""
        execute(
            "UPDATE approvals SET signal_timestamp = ?, expires_at = ? WHERE id = ?",
            (signal_timestamp, expires_at, approval),
        )

    async def decide(
        self,
        approval: int,
        state: ApprovalState,
        *,
        by: str | None = None,
        answer: AcceptedMessage | None = None,
    ) -> ApprovalState | None:
        """Decide an open question and return how it is decided now; None if it is gone.

        Args:
            approval: the question.
            state: YES, NO or SILENCE; ignored where it is decided already.
            by: ACI of the person who answered.
            answer: the message that answers, which owes no other answer then.
        """
        decided = await self._decide(approval, state, by, answer)
        if answer is not None:
            self._context.leave_no_words(have_disappeared=self._context.has_disappeared(answer))
        return decided

    @writes
    def _decide(
        self,
        execute: Execute,
        approval: int,
        state: ApprovalState,
        by: str | None,
        answer: AcceptedMessage | None,
    ) -> ApprovalState | None:
        if answer is not None:
            inbox.close(execute, answer.id, "approval")
        execute(
            "UPDATE approvals SET state = ?, decided_by = ?, decided_at = ?"
            " WHERE id = ? AND state = 'open'",
            (state, by, self._context.now_ms(), approval),
        )
        rows = list(execute("SELECT state FROM approvals WHERE id = ?", (approval,)))
        return next((ApprovalState(found) for (found,) in rows), None)

    @writes
    def begin(self, execute: Execute, turn_id: int, tool_call_id: str) -> None:
        """Store that a call that somebody has allowed runs now, so that it never does again."""
        execute(
            "UPDATE approvals SET state = 'begun' WHERE id = ? AND state = 'yes'",
            (turns.open_call(execute, turn_id, tool_call_id),),
        )

    @reads
    def waiting(self, execute: Execute) -> tuple[StoredApproval, ...]:
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
