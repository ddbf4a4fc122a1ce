"""`catch_up`: what people wrote in a group since somebody wrote there last."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from pydantic import Field

from tools.base import Caller, Tool
from tools.schema import tool_from

MAX_HOURS: Final = 7 * 24
MAX_NAME_CHARACTERS: Final = 200

Missed = Callable[[str, int], Awaitable[str]]
"""Returns what whoever calls has missed, by the group's name and hours; raises ToolError."""

Group = Annotated[str, Field(max_length=MAX_NAME_CHARACTERS)]
Hours = Annotated[int, Field(ge=0, le=MAX_HOURS)]


async def catch_up(missed: Missed, group: Group = "", hours: Hours = 0) -> str:
    """Read what people wrote in a group while the person was away. Use it for questions such as
    "what did I miss?" or "what was said today?", then sum up what matters, with names.

    Args:
        missed: Whoever calls.
        group: In a private chat, the name of the group. Empty: the group of this chat, or the only
            one that the person can ask about.
        hours: How many hours to look back. 0: since the person last wrote there.
    """  # noqa: D205 - the model reads all of it
    return await missed(group, hours)


def catch_up_tool(missed_by: Callable[[Caller], Missed]) -> Tool:
    """Make the tool.

    Args:
        missed_by: finds what a caller has missed.
    """
    return tool_from(catch_up, untrusted=True, given={"missed": missed_by})
