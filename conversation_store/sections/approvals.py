"""Questions to people about calls with side effects, one for each such call.

Asked at most once, decided at most once, and begun at most once: every change of state is
conditional on the state before it.
"""

import json
from collections.abc import Sequence
from typing import Final

from conversation_store import inbox, turns
from conversation_store.connections import Execute, Row
from conversation_store.models import (
    AcceptedMessage,
    ApprovalState,
    ChatId,
    CountedYes,
    StoredApproval,
)
from conversation_store.sections.section import Section, reads, writes

SELECT: Final = (
    "SELECT id, chat, asker, fingerprint, state, signal_timestamp, expires_at, covers, version,"
    " admins_needed, (SELECT count(*) FROM approval_votes WHERE approval = id), edits"
    " FROM approvals"
)


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
        helper: int | None = None,
    ) -> StoredApproval | None:
        """Return the question about an open call, made now if there is none yet.

        Args:
            execute: runs a statement.
            turn_id: the turn.
            tool_call_id: the call; None is returned when it is not open.
            chat: where to ask.
            asker: ACI of the person that the call is made for.
            fingerprint: of the call; the one that is stored counts.
            helper: see `HelperStore`; None: the call is one of the turn itself.
        """
        open_call = turns.open_call(execute, turn_id, tool_call_id, helper)
        if open_call is None:
            return None
        execute(
            "INSERT INTO approvals (id, chat, asker, fingerprint, state)"
            " VALUES (?, ?, ?, ?, 'open') ON CONFLICT DO NOTHING",
            (open_call, chat, asker, fingerprint),
        )
        (row,) = execute(f"{SELECT} WHERE id = ?", (open_call,))
        return _approval(row)

    @writes
    def mark_asked(
        self,
        execute: Execute,
        approval: int,
        signal_timestamp: int,
        expires_at: int,
        *,
        covers: Sequence[str] = (),
        version: str = "",
        admins_needed: int = 0,
    ) -> None:
        """Remember the question's message, and what an answer to it means.

        Args:
            execute: runs a statement.
            approval: the question.
            signal_timestamp: of its message.
            expires_at: until when (ms) an answer counts.
            covers: what a person may allow for longer with it.
            version: of the tool.
            admins_needed: how many admins have to say yes; 0: the asker may decide as well.
        """
        execute(
            "UPDATE approvals SET signal_timestamp = ?, expires_at = ?, covers = ?, version = ?,"
            " admins_needed = ? WHERE id = ?",
            (
                *(signal_timestamp, expires_at, json.dumps(covers), version),
                *(admins_needed, approval),
            ),
        )

    @writes
    def mark_edited(self, execute: Execute, approval: int, signal_timestamp: int) -> None:
        """Remember an edit of the question's message."""
        execute(
            "UPDATE approvals SET edits = json_insert(coalesce(edits, '[]'), '$[#]', ?)"
            " WHERE id = ?",
            (signal_timestamp, approval),
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

    async def count_yes(
        self, approval: int, *, by: str, needed: int, answer: AcceptedMessage | None = None
    ) -> CountedYes:
        """Count somebody's yes to an open question, once, and decide it with the last one needed.

        Args:
            approval: the question.
            by: ACI of the person who answered.
            needed: how many have to say yes.
            answer: the message that answers, which owes no other answer then.
        """
        counted = await self._count_yes(approval, by, needed, answer)
        if answer is not None:
            self._context.leave_no_words(have_disappeared=self._context.has_disappeared(answer))
        return counted

    @writes
    def _count_yes(
        self,
        execute: Execute,
        approval: int,
        by: str,
        needed: int,
        answer: AcceptedMessage | None,
    ) -> CountedYes:
        if answer is not None:
            inbox.close(execute, answer.id, "approval")
        execute(
            "INSERT OR IGNORE INTO approval_votes (approval, admin)"
            " SELECT id, ? FROM approvals WHERE id = ? AND state = 'open'",
            (by, approval),
        )
        rows = list(
            execute("SELECT admin FROM approval_votes WHERE approval = ? ORDER BY 1", (approval,))
        )
        if len(rows) >= needed:
            execute(
                "UPDATE approvals SET state = 'yes', decided_by = ?, decided_at = ?"
                " WHERE id = ? AND state = 'open'",
                (",".join(admin for (admin,) in rows), self._context.now_ms(), approval),
            )
        found = list(execute("SELECT state FROM approvals WHERE id = ?", (approval,)))
        state = next((ApprovalState(state) for (state,) in found), None)
        return CountedYes(state, len(rows))

    @writes
    def begin(
        self, execute: Execute, turn_id: int, tool_call_id: str, helper: int | None = None
    ) -> None:
        """Store that a call that somebody has allowed runs now, so that it never does again."""
        execute(
            "UPDATE approvals SET state = 'begun' WHERE id = ? AND state = 'yes'",
            (turns.open_call(execute, turn_id, tool_call_id, helper),),
        )

    @reads
    def waiting(self, execute: Execute) -> tuple[StoredApproval, ...]:
        """Return the questions that were sent and have no answer."""
        rows = list(
            execute(f"{SELECT} WHERE state = 'open' AND signal_timestamp IS NOT NULL ORDER BY id")
        )
        return tuple(_approval(row) for row in rows)


def _approval(row: Row) -> StoredApproval:
    id_, chat, asker, fingerprint, state, signal_timestamp, expires_at, *more = row
    covers, version, admins_needed, yes, edits = more
    return StoredApproval(
        id_,
        ChatId.parse(chat),
        asker,
        fingerprint,
        ApprovalState(state),
        signal_timestamp,
        expires_at,
        tuple(json.loads(covers or "[]")),
        version or "",
        admins_needed,
        yes,
        tuple(json.loads(edits or "[]")),
    )
