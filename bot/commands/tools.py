"""`!tools`: what the model may use."""

from collections.abc import Sequence

from bot.commands.base import CommandContext
from tools.base import Tool, first_sentence


class Tools:
    """Lists the tools."""

    name = "tools"
    summary = "what I can use to answer"
    urgent = False

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    async def run(self, context: CommandContext) -> str:
        """Return one line for each tool."""
        if not self._tools:
            return "I have no tools here: I answer from what I know."
        return "\n".join(
            f"• {tool.name}: {first_sentence(tool.description)}" for tool in self._tools
        )
