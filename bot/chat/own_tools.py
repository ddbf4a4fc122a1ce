"""Offer the bot's own tools, for its turns, people, memory and reminders."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Never
from zoneinfo import ZoneInfo

from bot.chat.helpers import HELPER_SECONDS, HelpWith, delegate
from bot.chat.namesakes import NAMELESS
from bot.chat.plan import todo
from bot.chat.turn import Turn
from bot.config.settings import Settings
from conversation_store.memory import MemoryStore
from conversation_store.models import DAY_MS, ChatId, NewReminder, StoredReminder
from conversation_store.models import Fact as StoredFact
from conversation_store.reminders import ReminderStore
from conversation_store.search import SearchStore
from tools.base import Caller, InvalidArguments, Tool, ToolError
from tools.catch_up import Missed, catch_up_tool
from tools.dates import find_zone
from tools.memory import Fact, Memory, memory_tools
from tools.people import Choose, Decide, ask_user_of, propose_plan_of, react_of
from tools.registry import Registry
from tools.reminders import Entry, NewEntry, Reminders, instant, reminder_tools, to_ms
from tools.schema import tool_from
from tools.search_chat import Chat, Found, search_tool

MEMORY: Final = "memory"
"""The source of the tools that work with facts."""

KEEPS_NOTHING: Final = (
    "STORE__RETENTION_DAYS=0 keeps nothing past a turn, so nothing can be remembered."
)


def only_listed(*_: object) -> Never:
    """Stand in for the parts of tools that are listed and never called."""
    raise ToolError("Nothing is called here.")


@dataclass(frozen=True, slots=True)
class PartsOfTools:
    """The parts of the bot that its own tools use; most are functions of the caller."""

    turn_of: Callable[[Caller], Turn]
    helpers_of: Callable[[Caller], HelpWith]
    reminders_of: Callable[[Caller], Reminders]
    memory_of: Callable[[Caller], Memory]
    missed: Callable[..., Awaitable[str]]
    past_of: Callable[[Caller], Chat]
    choose: Choose
    decide: Decide


LISTED: Final = PartsOfTools(*(only_listed,) * 8)
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
    yield react_of(lambda caller: parts.turn_of(caller).check_reaction())
    show_list = {"show_list": lambda caller: parts.turn_of(caller).progress.show_list}
    yield tool_from(todo, bookkeeping=True, given=show_list)
    yield tool_from(delegate, timeout_seconds=HELPER_SECONDS, given={"help_with": parts.helpers_of})
    if settings.access.groups != "off" and settings.store.retention_days:
        yield catch_up_tool(partial(_missed_by, parts))
    if settings.store.retention_days:
        yield search_tool(parts.past_of)
    yield from reminder_tools(parts.reminders_of)


def _missed_by(parts: PartsOfTools, caller: Caller) -> Missed:
    turn = parts.turn_of(caller)

    async def missed(group: str, hours: int) -> str:
        return await parts.missed(turn.person, turn.chat, group, hours, turn_id=turn.id)

    return missed


def uses_memory(settings: Settings) -> bool:
    """Return whether the bot remembers facts and shows them to the model."""
    return settings.tools.enabled and "remember" not in settings.tools.disabled


# Memory and reminders in the store

OUTSIDE: Final = "There is no memory outside of a conversation."

_REFUSALS: Final = {
    "off": (
        "Memory is off in this chat: nothing was remembered or looked up. Tell the person that"
        " !memory on switches it on again."
    ),
    "full": (
        "Not remembered: the memory of this chat is full. Tell the person that !memory lists what"
        " is in it, and forget what they no longer need."
    ),
    "kept_nowhere": (
        "Not remembered: in this chat nothing is kept beyond the answer to a message. Tell the"
        " person so."
    ),
}


def memory_of(store: MemoryStore, caller: Caller) -> Memory:
    """Return the facts of the chat of a call; raises ToolError outside of a turn."""
    if (turn := caller.turn) is None:
        raise ToolError(OUTSIDE)
    chat = ChatId.parse(caller.chat)

    def fact(one: StoredFact) -> Fact:
        until = one.said_at + store.retention_days * DAY_MS
        return Fact(one.number, one.text, one.said_at, one.expires_at, until)

    async def remember(text: str) -> Fact:
        kept = await store.remember(chat, text, turn_id=turn, call=caller.call)
        if isinstance(kept, str):
            raise ToolError(_REFUSALS[kept])
        return fact(kept)

    async def recall(query: str, limit: int) -> Sequence[Fact]:
        found = await store.recall(chat, query, limit, turn_id=turn)
        if isinstance(found, str):
            raise ToolError(_REFUSALS[found])
        return [fact(one) for one in found]

    async def forget(number: int) -> bool:
        return await store.forget(chat, number)

    return Memory(remember, recall, forget)


def past_of(store: SearchStore, caller: Caller) -> Chat:
    """Return the past of the chat of a call; raises ToolError outside of a turn."""
    if (turn := caller.turn) is None:
        raise ToolError("There is no past outside of a conversation.")
    chat = ChatId.parse(caller.chat)

    async def find(query: str, limit: int, since: int, until: int) -> Sequence[Found]:
        found = await store.find(chat, query, limit, reader=turn, since=since, until=until)
        return [
            Found("" if one.by_bot else one.author_name or NAMELESS, one.text, one.sent_at)
            for one in found
        ]

    return Chat(find, caller.zone)


MAX_REMINDERS: Final = 100
"""Waiting reminders of one person."""


def reminders_of(
    store: ReminderStore, changed: Callable[[], None], clock: Callable[[], float], caller: Caller
) -> Reminders:
    """Return the caller's reminders that may be shown in the chat of the call."""
    person, chat, turn = caller.person, caller.chat, caller.turn
    now = datetime.fromtimestamp(clock(), UTC)

    async def zone() -> str | None:
        return await store.zone_of(person)

    async def move(place: str) -> str:
        name = await move_to(store, person, place, now)
        changed()
        return name

    async def add(new: NewEntry) -> Entry | None:
        kept = await store.add(
            person, chat, NewReminder(*new), turn=turn, call=caller.call, at_most=MAX_REMINDERS
        )
        changed()
        return None if kept is None else _entry(kept)

    async def listed() -> Sequence[Entry]:
        return [_entry(entry) for entry in await store.tell(person, chat, turn=turn)]

    async def cancel(number: int) -> bool:
        kept = await store.cancel(person, chat, number, turn=turn, call=caller.call)
        return kept is not None

    return Reminders(now, MAX_REMINDERS, zone, move, add, listed, cancel)


async def move_to(store: ReminderStore, person: str, place: str, now: datetime) -> str:
    """Store a person's time zone, named by a zone or a city, and return its name.

    Reminders in local time keep that time in the new zone, like a phone's alarm clock: 07:00
    stays 07:00. Reminders at a fixed moment keep it. InvalidArguments names the nearest zones.
    """
    name, zone = await asyncio.to_thread(find_zone, place, now)
    if not isinstance(zone, ZoneInfo):
        raise InvalidArguments(
            "Clocks change in most zones, so an offset will not do: send a name such as"
            " Europe/Berlin, or a city."
        )
    changes = [
        (reminder.id, local, to_ms(instant(datetime.fromisoformat(local), zone)))
        for reminder in await store.local_ones(person)
        if (local := reminder.local_at) is not None
    ]
    await store.set_zone(person, name, changes)
    return name


def _entry(reminder: StoredReminder) -> Entry:
    return Entry(
        reminder.number,
        reminder.text,
        reminder.due_at,
        reminder.repeat,
        is_question=reminder.is_question,
        is_delivered=reminder.is_delivered,
    )
