"""`!timezone`: where a person is, so that times are theirs."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from bot.commands.base import CommandContext, Reply
from conversation_store.sections.reminders import ReminderStore
from tools.errors import InvalidArguments
from tools.reminders.times import zone_named
from tools.reminders.zones import move_to

KNOWN: Final = "Your time zone is {zone}; it is {time} there now."
NOT_KNOWN: Final = (
    "I do not know your time zone. Send !timezone and your city, such as !timezone Berlin."
)
NO_SUCH_ZONE: Final = (
    "I know no time zone of that name. Send one such as Europe/Berlin, or a large city that has"
    " your time."
)
MOVED: Final = "Reminders in local time come at the same times there."

MAX_CHARACTERS: Final = 64


class TimezoneCommand:
    """Shows or changes the time zone of whoever asks.

    Args:
        book: keeps it, and the reminders that move along.
        changed: called when something is due at another time than before.
        clock: seconds since 1970.
    """

    name = "timezone"
    summary = "your time zone, by the name of a city"
    urgent = False

    def __init__(
        self, book: ReminderStore, changed: Callable[[], None], *, clock: Callable[[], float]
    ) -> None:
        self._book = book
        self._changed = changed
        self._clock = clock

    async def run(self, context: CommandContext) -> Reply:
        """Show it, or change it."""
        person = context.author.aci
        if not context.argument:
            zone = await self._book.zone_of(person)
            return Reply(NOT_KNOWN if zone is None else self._known(zone))
        if len(context.argument) > MAX_CHARACTERS:
            return Reply(NO_SUCH_ZONE)
        try:
            zone = await move_to(self._book, person, context.argument, self._now())
        except InvalidArguments:
            return Reply(NO_SUCH_ZONE)
        self._changed()
        return Reply(f"{self._known(zone)}\n{MOVED}")

    def _known(self, zone: str) -> str:
        return KNOWN.format(zone=zone, time=f"{self._now().astimezone(zone_named(zone)):%H:%M}")

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)
