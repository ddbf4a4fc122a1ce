"""How many calls of a turn count against what it may call."""

from dataclasses import dataclass
from typing import Final

MAX_FREE_CALLS: Final = 30
"""Bookkeeping that a turn may do beside its other calls; more of it counts like them."""


@dataclass(slots=True)
class CallCount:
    """Counts the calls of a turn.

    Attributes:
        bookkeeping: calls that only note what the model is about to do.
        others: all other calls.
    """

    bookkeeping: int = 0
    others: int = 0

    def add(self, *, bookkeeping: bool) -> None:
        """Count one more call."""
        self.bookkeeping += bookkeeping
        self.others += not bookkeeping

    @property
    def counted(self) -> int:
        """How many of them count."""
        return self.others + max(0, self.bookkeeping - MAX_FREE_CALLS)
