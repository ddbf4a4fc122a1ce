"""All commands. A new one is a file of its own and a line here."""

from collections.abc import Iterable

from bot.commands.base import AdminList, Command
from bot.commands.help import Help


def build(
    commands: Iterable[Command], *, for_admins: Iterable[Command], admins: AdminList
) -> dict[str, Command]:
    """Return the commands by name, `!help` added; ValueError when two have one name.

    Args:
        commands: for everybody.
        for_admins: for admins alone; they see to that themselves.
        admins: who that is.
    """
    listed, hidden = tuple(commands), tuple(for_admins)
    by_name: dict[str, Command] = {}
    for command in (Help(listed, for_admins=hidden, admins=admins), *listed, *hidden):
        if command.name in by_name:
            raise ValueError(f"two commands are called {command.name}")
        by_name[command.name] = command
    return by_name
