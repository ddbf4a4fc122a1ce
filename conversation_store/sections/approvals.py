"""Questions to people, each asked, decided and acted on once."""

from conversation_store import (
    approvals,
    inbox,
    turns,
)
from conversation_store.database import (
    Execute,
)
from conversation_store.models import (
    AcceptedMessage,
    ApprovalState,
    ChatId,
    StoredApproval,
)
from conversation_store.sections.context import StoreContext


class ApprovalStore:
    """Questions to people, each asked, decided and acted on once.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def find_or_open(
        self, turn_id: int, tool_call_id: str, *, chat: ChatId, asker: str, fingerprint: str
    ) -> StoredApproval | None:
        """Return the question about an open call, made now if there is none yet.

        Args:
            turn_id: the turn.
            tool_call_id: the call; None is returned when it is not open.
            chat: where to ask.
            asker: ACI of the person that the call is made for.
            fingerprint: of the call; the one that is stored counts.
        """

        def find(execute: Execute) -> StoredApproval | None:
            open_call = turns.open_call(execute, turn_id, tool_call_id)
            if open_call is None:
                return None
            return approvals.open_or_find(
                execute, open_call, chat=chat, asker=asker, fingerprint=fingerprint
            )

        return await self._context.database.write(find)

    async def mark_asked(self, approval: int, signal_timestamp: int, expires_at: int) -> None:
        """Remember the question's message, and until when (ms) its answer counts."""

        def update(execute: Execute) -> None:
            approvals.mark_asked(execute, approval, signal_timestamp, expires_at)

        await self._context.database.write(update)

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

        def update(execute: Execute) -> ApprovalState | None:
            if answer is not None:
                inbox.close(execute, answer.id, "approval")
            return approvals.decide(execute, approval, state, by=by, now_ms=self._context.now_ms())

        decided = await self._context.database.write(update)
        if answer is not None:
            self._context.leave_no_words(have_disappeared=self._context.has_disappeared(answer))
        return decided

    async def begin(self, turn_id: int, tool_call_id: str) -> None:
        """Store that a call that somebody has allowed runs now, so that it never does again."""

        def update(execute: Execute) -> None:
            open_call = turns.open_call(execute, turn_id, tool_call_id)
            if open_call is not None:
                approvals.begin(execute, open_call)

        await self._context.database.write(update)

    async def waiting(self) -> tuple[StoredApproval, ...]:
        """Return the questions that were sent and have no answer."""
        return await self._context.database.read(approvals.waiting)
