"""Things the bot keeps for people: `!memory`, `!reminders` and `!timezone`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from bot.commands.base import (
    CommandContext,
    Parts,
    Reply,
    command,
    day,
    group_refusal,
    number_in,
    without_argument,
)
from conversation_store.models import Attachment, ChatId, Fact, StoredReminder
from tools.base import InvalidArguments
from tools.display import visible
from tools.reminders import from_ms, zone_named

LISTED_FACTS: Final = 30
MINE: Final = "This is what you asked me to remember. I tell it in no other chat."
OURS: Final = "This is what I was asked to remember in this group. I tell it in no other chat."
NOTHING: Final = "I remember nothing here. Ask me to remember something, and I will."
OLDER: Final = "There are {count} older facts: send !memory export."
HOW: Final = (
    "!memory forget and a number forgets one, !memory forget all forgets all, !memory export sends"
    " them as a file, !memory off switches memory off here."
)
LASTS: Final = (
    "I forget a fact when the message that it came from is deleted or disappears, and after {days}"
    " days."
)
KEEPS_NOTHING: Final = (
    "I remember nothing here, because I am set up to forget everything after an answer."
)
IS_OFF: Final = (
    "Memory is off here: I remember nothing new and use nothing that I know. !memory on switches it"
    " on."
)
NOT_USED: Final = "My operator has switched memory off: I remember and use nothing."
SWITCHED_OFF: Final = (
    "Memory is off here from now on. I do not use the facts that I know; !memory forget all forgets"
    " them."
)
SWITCHED_ON: Final = "Memory is on here from now on."
FORGOTTEN: Final = "Forgotten: {what}. The messages about it in this chat are there until !clear."
ALL_FORGOTTEN: Final = (
    "I remember nothing here any more. The messages in this chat are there until !clear."
)
UNKNOWN_FACT: Final = "There is no such number. Send !memory to see them."
EXPORTED: Final = "Here is all that I remember in this chat. Facts: {count}."
FILE_NAME: Final = "memory.txt"

NO_REMINDERS: Final = "You have no reminders. Tell me what to remind you of, and when."
HOW_TO_CANCEL: Final = "!reminders cancel and its number cancels one."
TIMES: Final = "These are times in {zone}; !timezone changes that."
TIMES_IN_UTC: Final = (
    "Times are in UTC: I do not know your time zone. Send !timezone and your city."
)
UNKNOWN_REMINDER: Final = "There is no such number. Send !reminders to see them."
CANCELLED: Final = "Cancelled: {what}."
CANCEL: Final = "cancel"
SHOWN_CHARACTERS: Final = 80
REMINDER: Final = "⏰"
QUESTION: Final = "❓"
DELIVERED: Final = "✓"
REPEATED: Final = "🔁"

ZONE_CHARACTERS: Final = 64
KNOWN_ZONE: Final = "Your time zone is {zone}; it is {time} there now."
NO_ZONE: Final = (
    "I do not know your time zone. Send !timezone and your city, such as !timezone Berlin."
)
UNKNOWN_ZONE: Final = (
    "I know no time zone of that name. Send one such as Europe/Berlin, or a large city in your time"
    " zone."
)
MOVED: Final = "Reminders in local time come at the same times there."


def _only_shows_facts(argument: str) -> bool:
    return argument.casefold().split()[:1] not in (["forget"], ["on"], ["off"])


@command("memory", "show what I remember here, or make me forget it", urgent=_only_shows_facts)
async def memory(context: CommandContext) -> Reply:
    """List, export or forget the facts of a chat, or switch its memory on or off.

    In a group, each member may read all and forget single facts; the rest is for admins.
    """
    book, chat = context.parts.store.memory, context.chat
    match context.argument.casefold().split():
        case ["forget", *numbers] if numbers != ["all"]:
            return await _forget(context, numbers)
        case ["off"] | ["on"] | ["forget", "all"] as words:
            if refused := await group_refusal(context):
                return Reply(refused)
            if words[0] == "forget":
                await book.forget_all(chat)
                return Reply(ALL_FORGOTTEN)
            await book.switch(chat, on=words == ["on"])
            return Reply(SWITCHED_ON if words == ["on"] else SWITCHED_OFF)
        case ["export"]:
            return _exported(await book.of_chat(chat))
        case _:
            return await _facts(context.parts, chat)


async def _facts(parts: Parts, chat: ChatId) -> Reply:
    facts = await parts.store.memory.of_chat(chat)
    state = await _state(parts, chat, has_facts=bool(facts))
    if not facts:
        return Reply(state)
    lines = [OURS if chat.is_group else MINE, *map(_fact, facts[-LISTED_FACTS:])]
    if len(facts) > LISTED_FACTS:
        lines.append(OLDER.format(count=len(facts) - LISTED_FACTS))
    return Reply("\n".join((*lines, "", HOW, state)))


async def _state(parts: Parts, chat: ChatId, *, has_facts: bool) -> str:
    if not parts.uses_memory:
        return NOT_USED
    if not (days := parts.store.retention_days):
        return KEEPS_NOTHING
    if await parts.store.memory.is_off(chat):
        return IS_OFF
    return LASTS.format(days=days) if has_facts else NOTHING


async def _forget(context: CommandContext, words: Sequence[str]) -> Reply:
    numbers = [number for word in words if (number := number_in(word)) is not None]
    if not numbers or len(numbers) < len(words):
        return Reply(UNKNOWN_FACT)
    book = context.parts.store.memory
    known = [number for number in numbers if await book.forget(context.chat, number)]
    if not known:
        return Reply(UNKNOWN_FACT)
    return Reply(FORGOTTEN.format(what=", ".join(map(str, known))))


def _exported(facts: Sequence[Fact]) -> Reply:
    if not facts:
        return Reply(NOTHING)
    text = "".join(f"{_fact(fact)}\n" for fact in facts)
    file = Attachment(FILE_NAME, "text/plain", text.encode(errors="replace"))
    return Reply(EXPORTED.format(count=len(facts)), (file,))


def _fact(fact: Fact) -> str:
    until = "" if fact.expires_at is None else f", ⏱ {day(fact.expires_at)}"
    return f"{fact.number}. {fact.text} ({day(fact.said_at)}{until})"


def _only_shows_reminders(argument: str) -> bool:
    return argument.split()[:1] != [CANCEL]


@command("reminders", "show your reminders, or cancel one", urgent=_only_shows_reminders)
async def reminders(context: CommandContext) -> Reply:
    """List a person's reminders, or cancel one by its number.

    In a group, list only the reminders of this group: the members must not read the others.
    """
    book, person, chat = context.parts.store.reminders, context.author.aci, context.chat
    if _only_shows_reminders(context.argument):
        found = await book.of(person, chat)
        if not found:
            return Reply(NO_REMINDERS)
        zone = await book.zone_of(person)
        times = TIMES.format(zone=zone) if zone else TIMES_IN_UTC
        lines = [_reminder(one, chat) for one in found]
        return Reply("\n".join((*lines, HOW_TO_CANCEL, times)))
    words = context.argument.split()
    number = number_in(words[1]) if len(words) == 2 else None
    cancelled = await book.cancel(person, chat, number or 0)
    if cancelled is None:
        return Reply(UNKNOWN_REMINDER)
    return Reply(CANCELLED.format(what=_beginning(cancelled.text)))


def _reminder(reminder: StoredReminder, chat: ChatId) -> str:
    at = from_ms(reminder.due_at).astimezone(zone_named(reminder.zone))
    marks = QUESTION if reminder.is_question else REMINDER
    marks += DELIVERED * reminder.is_delivered + REPEATED * bool(reminder.repeat)
    line = f"{reminder.number}. {marks} {at:%Y-%m-%d %H:%M} {_beginning(reminder.text)}"
    return line if reminder.chat == chat else f"{line} (in a group)"


def _beginning(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


@command("timezone", "set your time zone by the name of a city", urgent=without_argument)
async def timezone(context: CommandContext) -> Reply:
    """Show or change a person's time zone."""
    parts, person = context.parts, context.author.aci
    now = datetime.fromtimestamp(parts.clock(), UTC)
    if not context.argument:
        known = await parts.store.reminders.zone_of(person)
        return Reply(NO_ZONE if known is None else _zone(known, now))
    if len(context.argument) > ZONE_CHARACTERS:
        return Reply(UNKNOWN_ZONE)
    try:
        zone = await parts.move_reminders(person, context.argument, now)
    except InvalidArguments:
        return Reply(UNKNOWN_ZONE)
    return Reply(f"{_zone(zone, now)}\n{MOVED}")


def _zone(zone: str, now: datetime) -> str:
    return KNOWN_ZONE.format(zone=zone, time=f"{now.astimezone(zone_named(zone)):%H:%M}")
