"""Which calls of a turn it may make.

A turn may make so many. Once a person has accepted its plan it may make as many for each step: one
that ends when the turn's list (`todo`) has another item done. However many steps there are, all of
them together have a bound.
"""

from collections.abc import Callable, Sequence
from typing import Final

from bot.chat.plan_mode import accepts_plan
from bot.chat.todo import done_in
from conversation_store.models import Message, ToolCall

MAX_FREE_CALLS: Final = 30
"""Bookkeeping that a step may do beside its other calls; more of it counts like them."""

REFUSALS_IN_STEP: Final = 2
"""Calls of a step that are refused because it may make no more, before the model has to answer: so
often it is told that it may go on with the next step."""

MAX_STEPS: Final = 10
"""A plan that is carried out may make as many calls as so many steps, all together."""


class CallCount:
    """Counts the calls of a turn.

    Args:
        limit: calls of a step, and of a turn without a plan.
        is_bookkeeping: whether calls of a tool only note what the model is about to do.
    """

    def __init__(self, limit: int, is_bookkeeping: Callable[[str], bool]) -> None:
        self._limit = limit
        self._is_bookkeeping = is_bookkeeping
        self._in_step = self._bookkeeping = 0
        self._in_plan: int | None = None
        self._done = 0
        self.allowed: set[str] = set()

    @property
    def is_in_plan(self) -> bool:
        """Whether a plan is carried out."""
        return self._in_plan is not None

    @property
    def has_room(self) -> bool:
        """Whether another call may be made."""
        if self._in_plan is None:
            return self._counted < self._limit
        in_step = self._counted < self._limit + REFUSALS_IN_STEP
        return in_step and self._in_plan < self._limit * MAX_STEPS

    def add(self, messages: Sequence[Message]) -> None:
        """Count the calls of a turn, and note by their ids which of them may run."""
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        for message in messages:
            if accepts_plan(names, message):
                self._begin_step()
                self._in_plan = self._done = 0
            for call in message.tool_calls:
                self._add(call)

    def _add(self, call: ToolCall) -> None:
        if self._in_plan is not None and (done := done_in(call)) > self._done:
            self._begin_step()
            self._done = done
        if self._is_bookkeeping(call.name):
            self._bookkeeping += 1
        else:
            self._in_step += 1
            if self._in_plan is not None:
                self._in_plan += 1
        if self._counted <= self._limit and (self._in_plan or 0) <= self._limit * MAX_STEPS:
            self.allowed.add(call.id)

    def _begin_step(self) -> None:
        self._in_step = self._bookkeeping = 0

    @property
    def _counted(self) -> int:
        return self._in_step + max(0, self._bookkeeping - MAX_FREE_CALLS)
