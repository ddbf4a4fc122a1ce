"""The tools that work with the bot itself: the turn that calls them, people, and what is kept."""

from collections.abc import Callable, Iterator
from typing import Final, Never

from bot.chat.helpers import HELPER_SECONDS, HelpWith, delegate
from bot.chat.live_turns import LiveTurn
from bot.chat.todo import todo
from bot.config.settings import Settings
from tools.base import Caller, Tool
from tools.catch_up import Missed, catch_up_tool
from tools.errors import ToolError
from tools.memory.tool import Memory, memory_tools
from tools.people import People, ask_user_of, propose_plan_of
from tools.registry import Registry
from tools.reminders.tool import Reminders, reminder_tools
from tools.schema import tool_from

MEMORY: Final = "memory"
"""The source of the tools that work with facts."""

KEEPS_NOTHING: Final = (
    "STORE__RETENTION_DAYS=0 keeps nothing past a turn, so nothing can be remembered."
)


def only_listed(_: Caller) -> Never:
    """Be what a tool works with where tools are listed and never called."""
    raise ToolError("Nothing is called here.")


def offer_own_tools(
    settings: Settings,
    registry: Registry,
    *,
    turn_of: Callable[[Caller], LiveTurn],
    helpers_of: Callable[[Caller], HelpWith],
    reminders_of: Callable[[Caller], Reminders],
    memory_of: Callable[[Caller], Memory],
    missed_by: Callable[[Caller], Missed],
    people: People,
) -> None:
    """Offer the tools that the settings want.

    Args:
        settings: of the bot; they may have changed since the last time.
        registry: takes them.
        turn_of: finds the turn that a call belongs to.
        helpers_of: finds who helps the turn that a call belongs to.
        reminders_of: finds the reminders of whoever calls.
        memory_of: finds the facts of the chat that a call is made in.
        missed_by: finds what whoever calls has missed in groups.
        people: asks them.
    """

    def wanted() -> Iterator[Tool]:
        yield ask_user_of(people)
        yield propose_plan_of(people)
        yield tool_from(todo, bookkeeping=True, given={"turn": turn_of})
        if settings.tools.helpers.enabled:
            yield tool_from(
                delegate, timeout_seconds=HELPER_SECONDS, given={"help_with": helpers_of}
            )
        if settings.access.groups != "off" and settings.store.retention_days:
            yield catch_up_tool(missed_by)
        if settings.tools.reminders.enabled:
            yield from reminder_tools(reminders_of)

    if settings.tools.enabled and settings.tools.max_tool_calls:
        for tool in wanted():
            registry.offer(tool.name, (tool,))
        if uses_memory(settings):
            _offer_memory(settings, registry, memory_of)


def uses_memory(settings: Settings) -> bool:
    """Whether facts are remembered, and shown to the model."""
    return settings.tools.enabled and settings.tools.memory.enabled


def _offer_memory(
    settings: Settings, registry: Registry, memory_of: Callable[[Caller], Memory]
) -> None:
    if settings.store.retention_days:
        registry.offer(MEMORY, memory_tools(memory_of))
    else:
        registry.withdraw(MEMORY, KEEPS_NOTHING)
