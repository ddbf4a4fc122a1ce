"""From a call to its rows, its metrics and its sign in the chat, before the model sees a result."""

import hashlib
from collections.abc import Callable, Iterable

from bot.chat.progress import Progress
from bot.observability import metrics
from conversation_store.models import AcceptedMessage, Attachment, AuditEntry
from conversation_store.store import ConversationStore
from tools.base import Outcome, ToolRequest, ToolResult


class TurnAudit:
    """Keeps and shows the calls of one turn. Implements `tools.audit.Audit`.

    Args:
        store: where calls are kept.
        accepted: the message that they are made for.
        turn_id: the turn.
        progress: the turn's sign of work.
        keep_arguments: whether arguments are kept, beside their hash.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: ConversationStore,
        accepted: AcceptedMessage,
        turn_id: int,
        progress: Progress,
        *,
        keep_arguments: bool,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._accepted = accepted
        self._turn_id = turn_id
        self._progress = progress
        self._keep_arguments = keep_arguments
        self._clock = clock
        self._shown: set[str] = set()

    @property
    def caller(self) -> str:
        """Whom the calls are made for."""
        return self._accepted.message.author

    def show(self, requests: Iterable[ToolRequest]) -> None:
        """Show in the chat that calls run."""
        for request in requests:
            self._shown.add(request.call_id)
            self._progress.show([request.tool])

    async def starting(self, request: ToolRequest) -> None:
        """Store that a call that somebody has allowed runs now, and show it."""
        await self._store.approvals.begin(self._turn_id, request.call_id)
        self.show([request])

    async def finished(self, result: ToolResult) -> None:
        """Store the result and its audit entry in one transaction, count it and show it."""
        # The name comes from the model: only names of real tools may become labels.
        tool = "unknown" if result.outcome is Outcome.UNKNOWN else result.request.tool
        metrics.count_tool_call(tool, result.outcome, result.duration_seconds)
        message = self._accepted.message
        arguments = result.request.arguments
        entry = AuditEntry(
            at=int(self._clock() * 1_000),
            chat=message.chat,
            author=message.author,
            turn_id=self._turn_id,
            tool=tool,
            arguments_sha256=hashlib.sha256(arguments.encode()).hexdigest(),
            outcome=result.outcome,
            duration_ms=round(result.duration_seconds * 1000),
            arguments=arguments if self._keep_arguments else None,
        )
        files = [Attachment(file.name, file.content_type, file.data) for file in result.files]
        await self._store.turns.record_result(
            self._turn_id, result.request.call_id, result.content, entry, files=files
        )
        if result.request.call_id in self._shown:
            self._shown.remove(result.request.call_id)
            self._progress.finished(result.request.tool, ok=result.outcome is Outcome.OK)
