"""A question that is asked again: its words, and which tools were called for it before.

The model is not shown its earlier answer, so that it makes a new one. What it has done for the
question it has to know, so that it does not do it twice.
"""

from collections.abc import Sequence
from typing import Final

from conversation_store.models import Message, Role

MAX_CALLS: Final = 10
MAX_ARGUMENTS_CHARACTERS: Final = 200
"""Of one call; more is not needed to know it again."""

OPENING: Final = (
    "\n[You were asked this before, and made these calls for it, which were carried out:"
)
ENDING: Final = "Make a call that changes something again only if that is wanted twice.]"


def asked_again(earlier: Sequence[Message]) -> str:
    """Return what people wrote in an earlier turn, and what was called there.

    Args:
        earlier: the messages of the turn.
    """
    said = (message.content or "" for message in earlier if message.role is Role.USER)
    # Of a question that was asked again already, the calls of that time have been told of.
    words = "\n".join(content.partition(OPENING)[0] for content in said)
    calls = [
        f"{call.name} {_shortened(call.arguments)}"
        for message in earlier
        for call in message.tool_calls
    ]
    if not calls:
        return words
    return "\n".join((f"{words}{OPENING}", *calls[:MAX_CALLS], ENDING))


def _shortened(arguments: str) -> str:
    line = " ".join(arguments.replace("[", "(").replace("]", ")").split())
    return line if len(line) <= MAX_ARGUMENTS_CHARACTERS else line[:MAX_ARGUMENTS_CHARACTERS] + "…"
