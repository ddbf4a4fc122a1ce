"""The turns that run now, for tools that work with the turn that calls them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from bot.chat.turn_context import TurnContext
from bot.chat.turn_state import TurnState
from tools.base import Caller
from tools.errors import ToolError

MAX_HELPERS_AT_ONCE: Final = 8
"""Of one turn; others wait."""


def _places() -> asyncio.Semaphore:
    return asyncio.Semaphore(MAX_HELPERS_AT_ONCE)


@dataclass(frozen=True, slots=True)
class LiveTurn:
    """A turn that runs.

    Attributes:
        state: what the model has been shown so far.
        context: what the turn's calls need.
        helper_places: for its helpers that work at the same time.
    """

    state: TurnState
    context: TurnContext
    helper_places: asyncio.Semaphore = field(default_factory=_places)


class LiveTurns:
    """Finds the turn that a call belongs to."""

    def __init__(self) -> None:
        self._turns: dict[int, LiveTurn] = {}

    @contextmanager
    def running(self, turn: LiveTurn) -> Iterator[None]:
        """Let the turn be found inside."""
        self._turns[turn.state.turn.id] = turn
        try:
            yield
        finally:
            del self._turns[turn.state.turn.id]

    def of(self, caller: Caller) -> LiveTurn:
        """Return the turn that a call belongs to.

        Raises:
            ToolError: none that runs.
        """
        turn = None if caller.turn is None else self._turns.get(caller.turn)
        if turn is None:
            raise ToolError("This works only while a message is being answered.")
        return turn
