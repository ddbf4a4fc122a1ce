"""`!help`: what the bot is and which commands there are."""

from collections.abc import Sequence
from typing import Final

from bot.commands.base import AdminList, Command, CommandContext, Reply

INTRODUCTION: Final = "Write to me as you would to a person. These words do something else:"
FOR_ADMINS: Final = "And because you administer me:"


class Help:
    """Lists the commands.

    Args:
        others: commands for everybody.
        for_admins: commands that admins are told of in private, and nobody else.
        admins: who that is.
    """

    name = "help"
    summary = "show this"
    urgent = False

    def __init__(
        self, others: Sequence[Command], *, for_admins: Sequence[Command], admins: AdminList
    ) -> None:
        self._others = tuple(others)
        self._for_admins = tuple(for_admins)
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Return one line for each command."""
        lines = [INTRODUCTION, "", *map(_line, (self, *self._others))]
        tells_admin = not context.chat.is_group and self._admins.is_admin(context.author)
        if self._for_admins and tells_admin:
            lines += ["", FOR_ADMINS, "", *map(_line, self._for_admins)]
        return Reply("\n".join(lines))


def _line(command: Command) -> str:
    return f"!{command.name}: {command.summary}"
