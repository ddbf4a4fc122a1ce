"""The reminders of a person: as tools and commands use them, and as people see them."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from bot.language.languages import Languages
from conversation_store.models import NewReminder, ReceivedKind, ReceivedMessage, StoredReminder
from conversation_store.reminders import ReminderStore
from tools.base import Caller
from tools.clock import find_zone
from tools.errors import InvalidArguments
from tools.reminders.times import from_ms, instant, to_ms, zone_named
from tools.reminders.tool import Entry, NewEntry, Reminders

BELL: Final = "⏰ "

LATE_MS: Final = 60_000
"""A reminder that is later than this names the time that it was for."""

LATE: Final = "(Late: this was for {when}.)"
LATE_SERIES: Final = "(Late: this was for {when}, and {count} more times since.)"

HEADING_CHARACTERS: Final = 80
"""Length of a scheduled question above its answer."""

MAX_TOKENS: Final = 100_000
"""Tokens of one run of a scheduled question; after them, the model has to answer."""

MAX_REMINDERS: Final = 100
"""Reminders of one person that wait at the same time."""


def reminders_of(
    store: ReminderStore,
    changed: Callable[[], None],
    clock: Callable[[], float],
    caller: Caller,
) -> Reminders:
    """Return the reminders of a caller that may be told in the chat of the call.

    Args:
        changed: called after the time of a reminder has changed.
        clock: seconds since 1970.
    """
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
        return None if kept is None else _plain(kept)

    async def listed() -> Sequence[Entry]:
        return [_plain(entry) for entry in await store.tell(person, chat, turn=turn)]

    async def cancel(number: int) -> bool:
        kept = await store.cancel(person, chat, number, turn=turn, call=caller.call)
        return kept is not None

    return Reminders(now, MAX_REMINDERS, zone, move, add, listed, cancel)


async def move_to(store: ReminderStore, person: str, place: str, now: datetime) -> str:
    """Store a person's time zone, and return its name.

    Reminders in local time move along, like the alarm clock of a phone: daily at 07:00 stays at
    07:00. Reminders at a moment keep that moment.

    Args:
        place: a zone of the IANA database, or the city of one.

    Raises:
        InvalidArguments: the zone is unknown; the text has the nearest names.
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


def _plain(reminder: StoredReminder) -> Entry:
    return Entry(
        reminder.number,
        reminder.text,
        reminder.due_at,
        reminder.repeat,
        is_question=reminder.is_question,
        is_delivered=reminder.is_delivered,
    )


def late_line(due_at: int, zone: str | None, *, missed: int = 0) -> str:
    """Return the line that says for when something was.

    Args:
        due_at: in ms.
        zone: of its person.
        missed: how often it should have come since.
    """
    local = from_ms(due_at).astimezone(zone_named(zone))
    when = f"{local:%Y-%m-%d %H:%M}" if zone else f"{local:%Y-%m-%d %H:%M} UTC"
    return (LATE_SERIES if missed > 0 else LATE).format(when=when, count=missed)


async def headings(
    message: ReceivedMessage, reminders: ReminderStore, languages: Languages
) -> list[str]:
    """Return the lines above the answer to a scheduled question; none above other answers."""
    if message.kind is not ReceivedKind.SCHEDULED:
        return []
    question = " ".join(message.text.split())
    if len(question) > HEADING_CHARACTERS:
        question = f"{question[:HEADING_CHARACTERS]}…"
    lines = [BELL + question]
    if message.received_at - message.timestamp > LATE_MS:
        line = late_line(message.timestamp, await reminders.zone_of(message.author))
        lines.append(languages.say(message.chat, line))
    return lines


def token_bound(message: ReceivedMessage) -> int | None:
    """Return how many tokens the turn of a message may take; None: as many as it needs."""
    return MAX_TOKENS if message.kind is ReceivedKind.SCHEDULED else None
