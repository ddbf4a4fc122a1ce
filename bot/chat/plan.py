"""Plan mode, and how many calls a turn may make.

After `!plan`, a turn only reads until a person has accepted its plan. The stored question ends
with a sentence that says so. Restarts and `!retry` find the mode there. A person who writes this
sentence binds only their own turn.

A turn may make so many calls. After its plan is accepted, it may make as many for each step. A step
ends when the turn's list (`todo`) has another item done. All steps together have a bound as well.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.chat.meaning import ACCEPTED
from bot.chat.progress import DONE, fitted
from conversation_store.models import Message, ReceivedKind, ReceivedMessage, ToolCall
from tools.base import InvalidArguments
from tools.people import PROPOSE_PLAN
from tools.schema import parse_object

PLANNING: Final = (
    "[Plan mode: find out what is needed with tools that only read, then propose a plan with"
    " propose_plan. Change nothing before the person has accepted it.]"
)

_COMMAND: Final = re.compile(r"\s*!plan\s+(?=\S)", re.IGNORECASE)

MAX_FREE_CALLS: Final = 30
"""Bookkeeping calls that a step may make without using up its calls."""

REFUSALS_IN_STEP: Final = 2
"""Refused calls of a step before the model has to answer. Each refusal says that it may go on with
the next step."""

MAX_STEPS: Final = 10
"""A plan that is carried out may make as many calls as so many steps, all together."""

OVER_LIMIT: Final = (
    "Not run: no more tool calls are allowed for this message. Answer with what you have."
)
OVER_STEP: Final = (
    "Not run: this step of the plan may make no more calls. If it is done, say so with todo, and go"
    " on with the next one. Otherwise answer with what you have."
)


def without_command(messages: Sequence[ReceivedMessage]) -> tuple[list[ReceivedMessage], bool]:
    """Return the messages without a leading `!plan`, and whether they began with it.

    Scheduled questions are never commands.
    """
    first, *others = messages
    command = _COMMAND.match(first.text)
    if command is None or first.kind is ReceivedKind.SCHEDULED:
        return [*messages], False
    return [replace(first, text=first.text[command.end() :]), *others], True


def is_to_be_planned(messages: Sequence[Message]) -> bool:
    """Return whether a turn with these messages began in plan mode."""
    return PLANNING in (messages[0].content or "")


def accepts_plan(call_names: dict[str, str], message: Message) -> bool:
    """Return whether a message is the result of an accepted plan.

    Args:
        call_names: the name of each called tool by the id of its call.
        message: of the turn.
    """
    is_of_plan = call_names.get(message.tool_call_id or "") == PROPOSE_PLAN
    return is_of_plan and message.content == ACCEPTED


def is_accepted(messages: Sequence[Message]) -> bool:
    """Return whether a person has accepted a plan in this turn."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return any(accepts_plan(names, message) for message in messages)


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


TODO: Final = "todo"
MAX_ITEMS: Final = 20
MAX_TEXT_CHARACTERS: Final = 500
MAX_SHOWN_BYTES: Final = 1_000
"""Bytes of all items, which leave room for the running tools in the same message."""

_SIGNS: Final = {"open": "☐", "doing": "◐", "done": DONE}


class Item(BaseModel):  # noqa: D101 - the model would read it
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
    state: Literal["open", "doing", "done"] = "open"


Items = Annotated[list[Item], Field(max_length=MAX_ITEMS)]


ShowList = Callable[[Sequence[str]], None]
"""Shows a list in the progress message of the calling turn."""


class _List(BaseModel):
    items: Items


async def todo(show_list: ShowList, items: Items) -> str:
    """Show your list of three or more steps; send all of it whenever one changes."""
    show_list(shown(items))
    done = sum(item.state == "done" for item in items)
    return f"The person sees the list: {done} of {len(items)} done."


def shown(items: Sequence[Item]) -> tuple[str, ...]:
    """Return a list as the person sees it, a line for each item, the longest cut."""
    most = MAX_SHOWN_BYTES // max(1, len(items))
    signed = ((_SIGNS[item.state], item.text) for item in items)
    return tuple(f"{sign} {fitted(text, most - len(f'{sign} '.encode()))}" for sign, text in signed)


def done_in(call: ToolCall) -> int:
    """Return how many items of a list a call says are done; 0 for any other call."""
    items = _items(call)
    return sum(item.state == "done" for item in items or ())


def _items(call: ToolCall) -> Items | None:
    """Return the list that a call keeps, or None."""
    if call.name != TODO:
        return None
    try:
        return _List.model_validate(parse_object(call.arguments)).items
    except (InvalidArguments, ValidationError):
        return None  # the model was told so, and the list before it is still shown


def last_shown(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the list that a turn has kept last, as the person sees it; empty without one."""
    calls = [call for message in messages for call in message.tool_calls]
    for call in reversed(calls):
        if (items := _items(call)) is not None:
            return shown(items)
    return ()
