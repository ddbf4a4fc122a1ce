"""Parts of the bot for tests of single commands."""

from dataclasses import fields
from typing import Any

from bot.commands.base import ChatTurns, Parts, People


async def _nothing(*_: object) -> int:
    return 0


IDLE = ChatTurns(lambda: 0, _nothing, _nothing)
"""No turn runs."""


def parts(**known: Any) -> Parts:
    """Return parts of which a command may use only the given ones."""
    return Parts(**_all(Parts, known))


def people(**known: Any) -> People:
    """Return decisions about people, of which a command may use only the given ones."""
    return People(**_all(People, known))


def _all(kind: type[Parts | People], known: dict[str, Any]) -> dict[str, Any]:
    return {field.name: known.get(field.name) for field in fields(kind)}
