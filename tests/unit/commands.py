"""Parts of the bot for tests of single commands."""

from dataclasses import fields
from typing import Any

from bot.commands.base import ChatTurns, Parts


async def _nothing(*_: object) -> int:
    return 0


IDLE = ChatTurns(lambda: 0, _nothing, _nothing)
"""No turn runs."""


def parts(**known: Any) -> Parts:
    """Return parts of which a command may use only the given ones."""
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in fields(Parts))
    return Parts(**unknown | known)
