"""`catch_up`: messages in a group since the person last wrote there."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from pydantic import Field

from tools.base import Caller, Tool
from tools.schema import tool_from

MAX_HOURS: Final = 7 * 24
MAX_NAME_CHARACTERS: Final = 200

Missed = Callable[[str, int], Awaitable[str]]
"""Returns the messages that a caller has missed, by the group's name and hours."""

Group = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
Hours = Annotated[int, Field(ge=0, le=MAX_HOURS)]


async def catch_up(missed: Missed, group: Group = "", hours: Hours = 0) -> str:
    """Read what a person missed in a group, to sum it up with names.

    Args:
        group: Its name, if asked in private.
        hours: 0: since the person last wrote there.
    """
    return await missed(group, hours)


def catch_up_tool(missed_by: Callable[[Caller], Missed]) -> Tool:
    """Return the tool."""
    return tool_from(catch_up, untrusted=True, given={"missed": missed_by})
