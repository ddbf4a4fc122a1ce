"""`todo`: the model's list of open steps, shown in the progress message of its turn.

The list is kept as the arguments of its call, like any call: that is where a restart finds it.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.chat.progress import DONE, fitted
from conversation_store.models import Message, ToolCall
from tools.errors import InvalidArguments
from tools.schema import parse_object

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
