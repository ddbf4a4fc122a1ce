"""The tools that work with the bot itself: with the turn that calls them."""

from collections.abc import Callable, Iterator
from typing import Never

from bot.chat.live_turns import LiveTurn
from bot.chat.todo import todo
from bot.config.settings import Settings
from tools.base import Caller, Tool
from tools.errors import ToolError
from tools.registry import Registry
from tools.schema import tool_from


def only_listed(_: Caller) -> Never:
    """Be what a tool works with where tools are listed and never called."""
    raise ToolError("Nothing is called here.")


def offer_own_tools(
    settings: Settings, registry: Registry, *, turn_of: Callable[[Caller], LiveTurn]
) -> None:
    """Offer the tools that the settings want.

    Args:
        settings: of the bot.
        registry: takes them.
        turn_of: finds the turn that a call belongs to.
    """
    if settings.tools.enabled and settings.tools.max_tool_calls:
        for tool in _wanted(turn_of):
            registry.offer(tool.name, (tool,))


def _wanted(turn_of: Callable[[Caller], LiveTurn]) -> Iterator[Tool]:
    yield tool_from(todo, bookkeeping=True, given={"turn": turn_of})
