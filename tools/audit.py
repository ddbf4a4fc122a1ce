"""Where results go before anybody sees them."""

from typing import Protocol

from tools.base import ToolResult


class Audit(Protocol):
    """Keeps what a call came to. Implemented by `bot.chat.audit.TurnAudit`; tests use a list."""

    async def finished(self, result: ToolResult) -> None:
        """Store the result; when this returns it survives a crash."""
        ...
