"""The tools that work with the facts of the chat that they are called in, and with no other's.

In private these are facts of one person, in a group those of the group. A fact lasts, and the model
is shown it again: so once it has read what strangers wrote, a person is asked before one is added
or taken away.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import Field

from tools.base import Caller, Tool
from tools.errors import InvalidArguments, ToolError
from tools.memory.book import Book, Refusal
from tools.schema import tool_from

MAX_TEXT_CHARACTERS: Final = 1_000
MAX_QUERY_CHARACTERS: Final = 500
MAX_FOUND: Final = 50
MAX_NUMBER: Final = 10**9
"""More than a store takes would be no number to it."""

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


@dataclass(frozen=True, slots=True)
class Memory:
    """The facts of one chat, for one call."""

    book: Book
    chat: str
    turn: int
    call: str


async def remember(
    memory: Memory, text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
) -> str:
    """Remember a fact in all later conversations of this chat. Use it when somebody wants you to
    remember something; never for what is only mentioned in passing. Other chats are never told.

    Args:
        memory: Of the chat.
        text: One short sentence that makes sense by itself later: with names and dates, without
            "I", "you" or "tomorrow".
    """  # noqa: D205 - the model reads all of it
    fact = " ".join(_CONTROL.sub(" ", text).split())
    if not fact:
        raise InvalidArguments("The text is empty.")
    kept = await memory.book.remember(memory.chat, fact, turn=memory.turn, call=memory.call)
    if isinstance(kept, Refusal):
        raise ToolError(kept)
    if kept.expires_at is None:
        return f"Remembered as number {kept.number}."
    return _UNTIL.format(number=kept.number, time=_utc(kept.expires_at).strftime("%Y-%m-%d %H:%M"))


async def recall(
    memory: Memory,
    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)],
    limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 10,
) -> str:
    """Find remembered facts of this chat by their words. The newest short ones are in the system
    text already; all others are found only here.

    Args:
        memory: Of the chat.
        query: Words that the fact may contain, also in other forms; empty for the newest facts.
        limit: At most so many.
    """  # noqa: D205 - as above
    facts = await memory.book.recall(memory.chat, query, limit, turn=memory.turn)
    if isinstance(facts, Refusal):
        raise ToolError(facts)
    if not facts:
        return "Nothing is remembered that fits. Try other words, or an empty query."
    return "\n".join(
        f"{fact.number} ({_utc(fact.said_at):%Y-%m-%d}): {fact.text}" for fact in facts
    )


async def forget(memory: Memory, number: Annotated[int, Field(ge=1, le=MAX_NUMBER)]) -> str:
    """Forget a remembered fact of this chat for good. Use it when somebody wants that, or when a
    fact is no longer true.

    Args:
        memory: Of the chat.
        number: Of the fact, as in the system text or from recall.
    """  # noqa: D205 - as above
    if not await memory.book.forget(memory.chat, number):
        raise ToolError(f"There is no fact with number {number}.")
    return f"Number {number} is forgotten."


def memory_tools(memory_of: Callable[[Caller], Memory]) -> Sequence[Tool]:
    """Return the tools that work with facts.

    Args:
        memory_of: returns the facts of the chat that a call is made in; raises ToolError.
    """
    given: dict[str, Callable[[Caller], object]] = {"memory": memory_of}
    return (
        tool_from(remember, given=given, lasting=True, question=_QUESTION),
        tool_from(recall, given=given),
        tool_from(forget, given=given, lasting=True, question=_FORGET),
    )


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1_000, UTC)
