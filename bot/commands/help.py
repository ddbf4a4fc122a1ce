"""`!help`: what the bot is and which commands there are."""

from collections.abc import Sequence
from typing import Final

from bot.commands.base import Command, CommandContext, Reply

INTRODUCTION: Final = "Write to me as you would to a person. These words do something else:"


class Help:
    """Lists the commands."""

    name = "help"
    summary = "show this"
    urgent = False

    def __init__(self, others: Sequence[Command]) -> None:
        self._others = tuple(others)

    async def run(self, context: CommandContext) -> Reply:
        """Return one line for each command."""
        lines = (f"!{command.name}: {command.summary}" for command in (self, *self._others))
        return Reply("\n".join((INTRODUCTION, "", *lines)))
