"""What comes at its time: how people see that, and for when it was if it is late."""

from typing import Final

from bot.language.languages import Languages
from conversation_store.models import ReceivedKind, ReceivedMessage
from conversation_store.sections.reminders import ReminderStore
from tools.reminders.times import from_ms, zone_named

BELL: Final = "⏰ "

LATE_MS: Final = 60_000
"""What comes later than this says for when it was."""

LATE: Final = "(Late: this was for {when}.)"
LATE_SERIES: Final = "(Late: this was for {when}, and {count} more times since.)"

HEADING_CHARACTERS: Final = 80
"""Of a question, above its answer."""

MAX_TOKENS: Final = 100_000
"""That one run of a scheduled question may take; then it has to be answered with what there is."""


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
