"""What people asked the bot to remember, and how they want it to be in a chat."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that the bot was asked to remember in a chat.

    Attributes:
        number: names it in its chat; no other fact there ever has the same.
        text: what it says.
        said_at: when the message came that it is from.
        expires_at: when that message disappears, and this with it.
    """

    number: int
    text: str
    said_at: int
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class ShownFacts:
    """The facts that the model is always shown in a chat, in the order of their numbers.

    Attributes:
        facts: they.
        others: how many more there are.
        until: when the first of all of them disappears; None: never.
    """

    facts: tuple[Fact, ...] = ()
    others: int = 0
    until: int | None = None


class NotRemembered(StrEnum):
    """Why something is not remembered."""

    OFF = "off"
    """The chat's memory is off."""
    FULL = "full"
    """The chat has as many facts as it may have."""
    KEPT_NOWHERE = "kept_nowhere"
    """Nothing is kept past its turn, or the turn is gone."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """How the bot is to be in a chat; `expires_at`: when the message that says so disappears."""

    text: str
    expires_at: int | None = None
