"""`remember`, `recall` and `forget`: facts of one chat, and of no other.

In private these are facts of one person, in a group those of the group. A fact lasts, and the model
is shown it again. So once the model has read strangers' words, a person is asked before one is
added or deleted.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from tools.base import Caller, InvalidArguments, Tool, ToolError
from tools.schema import tool_from

MAX_TEXT_CHARACTERS: Final = 1_000
MAX_QUERY_CHARACTERS: Final = 500
MAX_FOUND: Final = 50
MAX_NUMBER: Final = 10**9  # fits into a row of a store

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNTIL: Final = (
    "Remembered as number {number}, until {time} UTC: the message that it came from disappears"
    " then. Tell the person so."
)
_QUESTION: Final = (
    "Remember this for later conversations here? I have read what strangers wrote, and it may come"
    " from them."
)
_FORGET: Final = (
    "Forget this fact for good? I have read what strangers wrote, and it may be their wish."
    " !memory lists the facts."
)


class Fact(NamedTuple):
    """A fact with its number in the chat; times are those of its message, in ms since 1970.

    Attributes:
        expires_at: when its message disappears.
        until: when it is forgotten in any case.
    """

    number: int
    text: str
    said_at: int
    expires_at: int | None
    until: int


@dataclass(frozen=True, slots=True)
class Memory:
    """The facts of one chat, for one call; the functions raise ToolError if memory is off or full.

    Attributes:
        remember: stores a fact, once for each call.
        recall: returns at most so many facts that fit a query, best first; without one the newest.
        forget: deletes the fact with a number; False if the chat never had it.
    """

    remember: Callable[[str], Awaitable[Fact]]
    recall: Callable[[str, int], Awaitable[Sequence[Fact]]]
    forget: Callable[[int], Awaitable[bool]]


async def remember(
    memory: Memory, text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
) -> str:
    """Remember a fact if somebody wants that, never what is only mentioned.

    Args:
        text: Clear later: names and dates, no "I" or "tomorrow".
    """
    fact = " ".join(_CONTROL.sub(" ", text).split())
    if not fact:
        raise InvalidArguments("The text is empty.")
    kept = await memory.remember(fact)
    if kept.expires_at is None:
        return f"Remembered as number {kept.number}, until {_utc(kept.until):%Y-%m-%d}."
    return _UNTIL.format(number=kept.number, time=_utc(kept.expires_at).strftime("%Y-%m-%d %H:%M"))


async def recall(
    memory: Memory,
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)],
    limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 10,
) -> str:
    """Find remembered facts that are not listed above.

    Args:
        query: Empty for the newest.
        limit: 1 to 50. Default 10.
    """
    facts = await memory.recall(query, limit)
    lines = [f"{fact.number} ({_utc(fact.said_at):%Y-%m-%d}): {fact.text}" for fact in facts]
    return (
        "\n".join(lines) or "Nothing is remembered that fits. Try other words, or an empty query."
    )


async def forget(memory: Memory, number: Annotated[int, Field(ge=1, le=MAX_NUMBER)]) -> str:
    """Forget a remembered fact that is no longer true or wanted."""
    if not await memory.forget(number):
        raise ToolError(f"There is no fact with number {number}.")
    return f"Number {number} is forgotten."


def memory_tools(memory_of: Callable[[Caller], Memory]) -> Sequence[Tool]:
    """Return the tools, which work with the facts of the chat of a call."""
    given: dict[str, Callable[[Caller], object]] = {"memory": memory_of}
    return (
        tool_from(remember, given=given, lasting=True, question=_QUESTION),
        tool_from(recall, given=given),
        tool_from(forget, given=given, lasting=True, question=_FORGET),
    )


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)
