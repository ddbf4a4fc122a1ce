"""From a finished call to its rows and metrics, before the model sees the result."""

import hashlib
import time

from bot.observability import metrics
from conversation_store.models import AcceptedMessage, AuditEntry
from conversation_store.store import ConversationStore
from tools.base import Outcome, ToolRequest, ToolResult


class TurnAudit:
    """Keeps the calls of one turn. Implements `tools.audit.Audit`."""

    def __init__(self, store: ConversationStore, accepted: AcceptedMessage, turn_id: int) -> None:
        self._store = store
        self._accepted = accepted
        self._turn_id = turn_id

    @property
    def caller(self) -> str:
        """Whom the calls are made for."""
        return self._accepted.message.author

    async def starting(self, request: ToolRequest) -> None:
        """Calls with side effects come with approvals."""

    async def finished(self, result: ToolResult) -> None:
        """Store the result and its audit entry in one transaction, and count it."""
        # The name comes from the model: only names of real tools may become labels.
        tool = "unknown" if result.outcome is Outcome.UNKNOWN else result.request.tool
        metrics.TOOL_CALLS.labels(tool, result.outcome).inc()
        metrics.TOOL_SECONDS.labels(tool).observe(result.duration_seconds)
        message = self._accepted.message
        entry = AuditEntry(
            at=time.time_ns() // 1_000_000,
            chat=message.chat,
            author=message.author,
            turn_id=self._turn_id,
            tool=tool,
            arguments_sha256=hashlib.sha256(result.request.arguments.encode()).hexdigest(),
            outcome=result.outcome,
            duration_ms=round(result.duration_seconds * 1000),
        )
        await self._store.record_result(
            self._turn_id, result.request.call_id, result.content, entry
        )
