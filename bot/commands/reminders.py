"""`!reminders`: what a person is to be reminded of, and cancelling it."""

from collections.abc import Sequence
from typing import Final

from bot.commands.base import CommandContext, Reply, number_in
from conversation_store.models import ChatId, StoredReminder
from conversation_store.sections.reminders import ReminderStore
from tools.display import visible
from tools.reminders.times import from_ms, zone_named

NONE: Final = "You have no reminders. Tell me what to remind you of, and when."
HOW: Final = "!reminders cancel and its number cancels one."
TIMES: Final = "Times are those of {zone}; !timezone changes that."
TIMES_IN_UTC: Final = (
    "Times are in UTC: I do not know your time zone. Send !timezone and your city."
)
UNKNOWN: Final = "There is no such number. Send !reminders to see them."
CANCELLED: Final = "Cancelled: {what}."
ELSEWHERE: Final = "(in a group)"
CANCEL: Final = "cancel"

MAX_SHOWN_CHARACTERS: Final = 80
"""Of a text: the list is to be read at a glance."""

REMINDER: Final = "⏰"
QUESTION: Final = "❓"
DELIVERED: Final = "✓"
REPEATED: Final = "🔁"


class RemindersCommand:
    """Lists the reminders of whoever asks, and cancels one by its number.

    In a group these are only the ones that belong there: nobody else is to read the others.
    """

    name = "reminders"
    summary = "what I am to remind you of, and cancel it"
    urgent = False

    def __init__(self, book: ReminderStore) -> None:
        self._book = book

    async def run(self, context: CommandContext) -> Reply:
        """List them, or cancel one."""
        words = context.argument.split()
        person = context.author.aci
        if words[:1] != [CANCEL]:
            zone = await self._book.zone_of(person)
            return Reply(_listed(await self._book.of(person, context.chat), zone, context.chat))
        number = number_in(words[1]) if len(words) == 2 else None
        cancelled = await self._book.cancel(person, context.chat, number or 0)
        if cancelled is None:
            return Reply(UNKNOWN)
        return Reply(CANCELLED.format(what=_begins(cancelled.text)))


def _listed(reminders: Sequence[StoredReminder], zone: str | None, chat: ChatId) -> str:
    if not reminders:
        return NONE
    lines = [_line(reminder, chat) for reminder in reminders]
    return "\n".join([*lines, HOW, TIMES.format(zone=zone) if zone else TIMES_IN_UTC])


def _line(reminder: StoredReminder, chat: ChatId) -> str:
    at = from_ms(reminder.due_at).astimezone(zone_named(reminder.zone))
    marks = [QUESTION if reminder.is_question else REMINDER]
    if reminder.is_delivered:
        marks.append(DELIVERED)
    if reminder.repeat:
        marks.append(REPEATED)
    said = [f"{reminder.number}. {''.join(marks)} {at:%Y-%m-%d %H:%M}", _begins(reminder.text)]
    return " ".join([*said, ELSEWHERE] if reminder.chat != chat else said)


def _begins(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= MAX_SHOWN_CHARACTERS else f"{line[:MAX_SHOWN_CHARACTERS]}…"
