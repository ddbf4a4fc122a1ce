"""What a person may still use: a turn asks before each of its requests to a model.

A request that was sent is paid for, however much it takes; the next one is not sent.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from bot.messaging.events import Person


class AllowanceUsedUp(Exception):
    """The person of a turn has used up what may be read and written for them.

    Attributes:
        sentence: says so to them.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__("a person's allowance is used up")
        self.sentence = sentence


class Budget(Protocol):
    """How much may be used. Implemented by `bot.dispatch.turns.budget.TokenBudget`."""

    async def stops(self, person: Person, unstored: Callable[[], int]) -> str | None:
        """Return what somebody is told whose turn may ask no model any more; None if it may.

        Args:
            person: who pays for the turn.
            unstored: tokens that the turn has taken and that are not stored yet.
        """
        ...


Stops = Callable[[Callable[[], int]], Awaitable[str | None]]
"""`Budget.stops` of one person."""


async def never_stops(_: Callable[[], int]) -> None:
    """Be what bounds nobody."""
