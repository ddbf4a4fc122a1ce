"""`search_chat`: find earlier messages and answers of the chat."""

import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from tools.base import Caller, InvalidArguments, Tool, ToolOutput
from tools.reminders import from_ms, to_ms, zone_named
from tools.schema import tool_from

MAX_QUERY_CHARACTERS: Final = 200
MAX_FOUND: Final = 30
MAX_CHARACTERS: Final = 10_000
"""Part of a message that is looked at."""
EXCERPT_CHARACTERS: Final = 300
SEARCHED_CHARACTERS: Final = 2_000
"""Part of a message that is searched for the found words; without one there, the excerpt is the
message's beginning."""
BEFORE_CHARACTERS: Final = 80
"""Part of an excerpt before the first word that was found."""
FOREVER_MS: Final = 2**62

NOTHING: Final = "No message here has any of these words. Try other words, or another language."

Date = Annotated[str, Field(max_length=40)]


class Found(NamedTuple):
    """A message that was found; `author` is empty for the bot."""

    author: str
    text: str
    sent_at: int


class Chat(NamedTuple):
    """A chat to be searched, for one call.

    Attributes:
        find: returns messages that have words, best first: query, limit, and times (ms) from and
            before which they were sent.
        zone: name of the person's time zone.
    """

    find: Callable[[str, int, int, int], Awaitable[Sequence[Found]]]
    zone: str


async def search_chat(
    chat: Chat,
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)],
    limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 10,
    before: Date = "",
    after: Date = "",
) -> ToolOutput:
    """Search earlier messages and answers of this chat.

    Args:
        limit: 1 to 30. Default 10.
        before: ISO date.
        after: ISO date.
    """
    since = _ms(after, chat.zone) if after else 0
    until = _ms(before, chat.zone) if before else FOREVER_MS
    found = await chat.find(query, limit, since, until)
    lines = [line(one, query, chat.zone, bot="You") for one in found]
    return ToolOutput("\n".join(lines) or NOTHING, untrusted=bool(lines))


def line(found: Found, query: str, zone: str, *, bot: str) -> str:
    """Return a message with its date and author, cut to the words around the first one found."""
    at = from_ms(found.sent_at).astimezone(zone_named(zone))
    return f"{at:%Y-%m-%d %H:%M} {found.author or bot}: {_excerpt(found.text, query)}"


def _excerpt(text: str, query: str) -> str:
    """Return a part of a text, on one line, with the first word of a search that is in it."""
    text = " ".join(text[:MAX_CHARACTERS].split())
    if len(text) <= EXCERPT_CHARACTERS:
        return text
    folded = "".join(map(_folded, text[:SEARCHED_CHARACTERS]))  # a character for each one
    places = [folded.find("".join(map(_folded, word))) for word in query.split()]
    first = min((place for place in places if place >= 0), default=0)
    start = max(0, min(first - BEFORE_CHARACTERS, len(text) - EXCERPT_CHARACTERS))
    end = start + EXCERPT_CHARACTERS
    return "…" * (start > 0) + text[start:end].strip() + "…" * (end < len(text))


def _folded(character: str) -> str:
    """Return one character without case and accents."""
    return unicodedata.normalize("NFKD", character)[:1].casefold()[:1] or character


def _ms(text: str, zone: str) -> int:
    """Return the beginning of a day, or a time, by a zone's clocks, in ms since 1970."""
    try:
        at = datetime.fromisoformat(text.strip())
        if at.tzinfo is None:
            at = at.replace(tzinfo=zone_named(zone))
        return to_ms(at)
    except (ValueError, OverflowError):
        raise InvalidArguments("This is no date. Send one such as 2026-12-24.") from None


def search_tool(chat_of: Callable[[Caller], Chat]) -> Tool:
    """Return the tool; what it finds may quote strangers."""
    return tool_from(search_chat, given={"chat": chat_of})
