"""Where calls are kept before anything comes of them."""

from typing import Protocol

from tools.base import ToolRequest, ToolResult


class Audit(Protocol):
    """Keeps what a call came to. `bot.chat.turn_context.TurnContext` does; tests use a list."""

    async def starting(self, request: ToolRequest) -> None:
        """Store that a call with side effects now runs; when this returns it survives a crash."""
        ...

    async def finished(self, result: ToolResult) -> None:
        """Store the result; when this returns it survives a crash."""
        ...
