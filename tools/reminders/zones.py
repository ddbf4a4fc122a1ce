"""Where a person is: their time zone, and what follows from another one.

What was said in local time moves with the person, as the alarm clock of a phone does: daily at
07:00 stays at 07:00. What was said as a moment, with an offset, stays that moment.
"""

import asyncio
from datetime import datetime
from zoneinfo import ZoneInfo

from tools.clock import find_zone
from tools.errors import InvalidArguments
from tools.reminders.book import Book, Change
from tools.reminders.times import instant, to_ms


async def move_to(book: Book, person: str, place: str, now: datetime) -> str:
    """Remember a person's time zone, and return its name.

    Args:
        book: keeps it, and the reminders that move along.
        person: whose.
        place: a zone of the IANA database, or the city of one.
        now: the time.

    Raises:
        InvalidArguments: no zone is called that; the text has the nearest names.
    """
    name, zone = await asyncio.to_thread(find_zone, place, now)
    if not isinstance(zone, ZoneInfo):
        raise InvalidArguments(
            "Clocks change in most zones, so an offset will not do: send a name such as"
            " Europe/Berlin, or a city."
        )
    changes = [
        Change(
            entry.id, entry.local_at, to_ms(instant(datetime.fromisoformat(entry.local_at), zone))
        )
        for entry in await book.local_ones(person)
        if entry.local_at is not None
    ]
    await book.set_zone(person, name, changes)
    return name
