"""Plan mode, and how many calls a turn may make.

After `!plan`, a turn only reads until a person has accepted its plan. The stored question ends
with a sentence that says so; restarts and `!retry` recognize the mode by it. A person who writes
this sentence affects only their own turn.

A turn may call tools in a limited number of rounds, and in ten times as many once its plan is
accepted. It ends with words or with a reaction.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from bot.chat.meaning import ACCEPTED
from bot.chat.progress import DONE, fitted
from conversation_store.models import Message, ReceivedMessage, ToolCall
from tools.base import InvalidArguments
from tools.executor import NO_SUCH_TOOL, WRONG_ARGUMENTS
from tools.people import PROPOSE_PLAN, REACT, REACTED
from tools.schema import parse_object

PLANNING: Final = (
    "[Plan mode: find out what is needed with tools that only read, then propose a plan with"
    " propose_plan. Change nothing before the person has accepted it.]"
)

_COMMAND: Final = re.compile(r"\s*!plan\s+(?=\S)", re.IGNORECASE)

CALLS_PER_ROUND: Final = 3
"""The calls of a turn are at most so many times its rounds."""

MAX_FREE_CALLS: Final = 30
"""Bookkeeping calls of a turn that do not count."""

MAX_FREE_MISTAKES: Final = 3
"""Calls of a turn that end as `MISTAKES` and do not count."""

MISTAKES: Final = frozenset({"invalid", "unknown"})
"""Outcomes of calls that were refused for their name or their arguments."""

PLAN_FACTOR: Final = 10
"""Factor of the limits once a plan is accepted."""

OVER_LIMIT: Final = (
    "Not run: the tool calls for this message are used up. Answer now with what you have, and say"
    " what is left to do."
)
REPEATED: Final = "Not run again: another call of the same message is equal. See its result."
LAST_ROUND: Final = (
    "\n[This was the last round of tool calls for this message. Answer now, and say what is left to"
    " do.]"
)


def without_command(messages: Sequence[ReceivedMessage]) -> tuple[list[ReceivedMessage], bool]:
    """Return the messages without a leading `!plan`, and whether they began with it.

    Scheduled questions are never commands.
    """
    first, *others = messages
    command = _COMMAND.match(first.text)
    if command is None or first.kind == "scheduled":
        return [*messages], False
    return [replace(first, text=first.text[command.end() :]), *others], True


def is_to_be_planned(messages: Sequence[Message]) -> bool:
    """Return whether a turn with these messages began in plan mode."""
    return PLANNING in (messages[0].content or "")


def is_accepted(messages: Iterable[Message]) -> bool:
    """Return whether a person has accepted a plan in a turn."""
    names: dict[str, str] = {}
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        if names.get(message.tool_call_id or "") == PROPOSE_PLAN and message.content == ACCEPTED:
            return True
    return False


def allowed_calls(
    messages: Sequence[Message], rounds: int, is_bookkeeping: Callable[[str], bool]
) -> tuple[frozenset[str], bool]:
    """Return the ids of calls that may run, and whether calls may be made after them.

    Args:
        rounds: how often tools may be called, each time with several calls.
    """
    factor = PLAN_FACTOR if is_accepted(messages) else 1
    rounds, notes = rounds * factor, MAX_FREE_CALLS * factor
    calls, mistakes = rounds * CALLS_PER_ROUND, MAX_FREE_MISTAKES
    mistaken = {one.tool_call_id for one in messages if _is_mistake(one)}
    allowed = set()
    for asked in (message.tool_calls for message in messages):
        is_work = False
        for call in asked:
            if is_bookkeeping(call.name):
                notes -= 1
            elif call.id in mistaken and mistakes:
                mistakes -= 1
            else:
                is_work = True
                calls -= 1
            if min(rounds - is_work, calls, notes) >= 0:
                allowed.add(call.id)
        rounds -= is_work
    return frozenset(allowed), min(rounds, calls, notes) > 0


def _is_mistake(result: Message) -> bool:
    """Whether a call ended as one of `MISTAKES`."""
    return result.failed and (result.content or "").startswith((NO_SUCH_TOOL, WRONG_ARGUMENTS))


INSTEAD_OF_WORDS: Final = "[I reacted with {emoji} and wrote nothing.]"
"""The answer of a turn that ended with a reaction, as the model sees it later."""


def reaction_in(messages: Sequence[Message]) -> str:
    """Return the emoji if a turn with these messages has ended with a reaction, or nothing.

    Words next to the call count as little as next to other calls: people do not see them.
    """
    if len(messages) < 2 or len(messages[-2].tool_calls) != 1:
        return ""
    (call,), result = messages[-2].tool_calls, messages[-1]
    is_sent = call.name == REACT and result.tool_call_id == call.id and not result.failed
    said = (result.content or "") if is_sent else ""
    return said.removeprefix(REACTED) if said.startswith(REACTED) else ""


TODO: Final = "todo"
MAX_ITEMS: Final = 20
MAX_TEXT_CHARACTERS: Final = 500
MAX_SHOWN_BYTES: Final = 1_000
"""Bytes of all items; they leave room for the running tools in the same message."""

_SIGNS: Final = {"open": "☐", "doing": "◐", "done": DONE}


class Item(BaseModel):  # noqa: D101 - the model would read it
    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
    state: Literal["open", "doing", "done"] = "open"


def _as_item(value: object) -> object:
    """Return a step that a model sends as mere text, as an item."""
    return {"text": value} if isinstance(value, str) else value


Items = Annotated[list[Annotated[Item, BeforeValidator(_as_item)]], Field(max_length=MAX_ITEMS)]
_ITEMS: Final = TypeAdapter(Items)


ShowList = Callable[[Sequence[str]], None]
"""Shows a list in the progress message of the calling turn."""


async def todo(show_list: ShowList, items: Items) -> str:
    """Show your list of three or more steps; send all of it at each change."""
    show_list(shown(items))
    done = sum(item.state == "done" for item in items)
    return f"The person sees the list: {done} of {len(items)} done."


def shown(items: Sequence[Item]) -> tuple[str, ...]:
    """Return a list as the person sees it, a line for each item, the longest cut."""
    most = MAX_SHOWN_BYTES // max(1, len(items))
    signed = ((_SIGNS[item.state], item.text) for item in items)
    return tuple(f"{sign} {fitted(text, most - len(f'{sign} '.encode()))}" for sign, text in signed)


def _items(call: ToolCall) -> Items | None:
    if call.name != TODO:
        return None
    try:
        return _ITEMS.validate_python(parse_object(call.arguments).get("items"))
    except (InvalidArguments, ValidationError):
        return None  # the model gets an error, and the previous list stays visible


def last_shown(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the latest list of a turn, as the person sees it; empty without one."""
    calls = [call for message in messages for call in message.tool_calls]
    for call in reversed(calls):
        if (items := _items(call)) is not None:
            return shown(items)
    return ()
