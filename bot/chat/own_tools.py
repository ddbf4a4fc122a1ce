"""Offer the tools that work with the bot: its turns, people, memory and reminders."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Never

from bot.chat.helpers import HELPER_SECONDS, HelpWith, delegate
from bot.chat.todo import ShowList, todo
from bot.chat.turn import Turn
from bot.config.settings import Settings
from tools.base import Caller, Tool
from tools.catch_up import Missed, catch_up_tool
from tools.errors import ToolError
from tools.memory import Memory, memory_tools
from tools.people import Choose, Decide, ask_user_of, propose_plan_of
from tools.registry import Registry
from tools.reminders.tool import Reminders, reminder_tools
from tools.schema import tool_from

MEMORY: Final = "memory"
"""The source of the tools that work with facts."""

KEEPS_NOTHING: Final = (
    "STORE__RETENTION_DAYS=0 keeps nothing past a turn, so nothing can be remembered."
)


def only_listed(*_: object) -> Never:
    """Stand in for the parts behind tools that are listed and never called."""
    raise ToolError("Nothing is called here.")


@dataclass(frozen=True, slots=True)
class PartsOfTools:
    """The parts of the bot that its own tools work with, most of them by the caller."""

    turn_of: Callable[[Caller], Turn]
    helpers_of: Callable[[Caller], HelpWith]
    reminders_of: Callable[[Caller], Reminders]
    memory_of: Callable[[Caller], Memory]
    missed: Callable[..., Awaitable[str]]
    choose: Choose
    decide: Decide


LISTED: Final = PartsOfTools(*(only_listed,) * 7)
"""For tools that are listed and never called."""


def offer_own_tools(settings: Settings, registry: Registry, parts: PartsOfTools) -> None:
    """Offer the tools that the settings want; call it again after the settings have changed."""
    if not settings.tools.in_use:
        return
    for tool in _wanted(settings, parts):
        registry.offer(tool.name, (tool,))
    if not uses_memory(settings):
        return
    if settings.store.retention_days:
        registry.offer(MEMORY, memory_tools(parts.memory_of))
    else:
        registry.withdraw(MEMORY, KEEPS_NOTHING)


def _wanted(settings: Settings, parts: PartsOfTools) -> Iterator[Tool]:
    yield ask_user_of(parts.choose)
    yield propose_plan_of(parts.decide)
    yield tool_from(todo, bookkeeping=True, given={"show_list": partial(_list_of, parts)})
    yield tool_from(delegate, timeout_seconds=HELPER_SECONDS, given={"help_with": parts.helpers_of})
    if settings.access.groups != "off" and settings.store.retention_days:
        yield catch_up_tool(partial(_missed_by, parts))
    yield from reminder_tools(parts.reminders_of)


def _list_of(parts: PartsOfTools, caller: Caller) -> ShowList:
    return parts.turn_of(caller).progress.show_list


def _missed_by(parts: PartsOfTools, caller: Caller) -> Missed:
    """Return a function that reads the messages a person missed in groups."""
    turn = parts.turn_of(caller)

    async def missed(group: str, hours: int) -> str:
        return await parts.missed(turn.person, turn.chat, group, hours, turn_id=turn.id)

    return missed


def uses_memory(settings: Settings) -> bool:
    """Return whether the bot remembers facts and shows them to the model."""
    return settings.tools.enabled and "remember" not in settings.tools.disabled
