"""All commands. A new one is a file of its own and a line here."""

from collections.abc import Iterable

from bot.commands.base import Command
from bot.commands.help import Help


def build(commands: Iterable[Command]) -> dict[str, Command]:
    """Return the commands by name, `!help` added; ValueError when two have one name."""
    listed = tuple(commands)
    by_name: dict[str, Command] = {}
    for command in (Help(listed), *listed):
        if command.name in by_name:
            raise ValueError(f"two commands are called {command.name}")
        by_name[command.name] = command
    return by_name
