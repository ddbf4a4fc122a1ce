"""Things the bot keeps for people: `!memory`, `!reminders` and `!timezone`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from bot.commands.base import CommandContext, Parts, Reply, check_admin, command, day
from conversation_store.models import Attachment, ChatId, Fact, StoredReminder
from tools.base import InvalidArguments
from tools.display import one_line
from tools.reminders import from_ms, zone_named

MAX_DIGITS: Final = 9
"""Enough for any list; the store takes numbers of up to 18 digits."""

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
FORGOTTEN: Final = "Forgotten: {what}. I still see the messages about it here until !clear."
ALL_FORGOTTEN: Final = (
    "I remember nothing here any more. I still see the messages of this chat until !clear."
)
WHICH_FACT: Final = "Which one? Send !memory forget and its number; !memory shows the numbers."
UNKNOWN_FACT: Final = "There is no such number. Send !memory to see them."
EXPORTED: Final = "Here is all that I remember in this chat. Facts: {count}."

NO_REMINDERS: Final = "You have no reminders. Tell me what to remind you of, and when."
UNKNOWN_REMINDER: Final = "There is no such number. Send !reminders to see them."
SHOWN_CHARACTERS: Final = 80

ZONE_CHARACTERS: Final = 64
NO_ZONE: Final = (
    "I do not know your time zone. Send !timezone and your city, such as !timezone Berlin."
)
MOVED: Final = "Reminders in local time come at the same times there."
UNKNOWN_ZONE: Final = (
    "I know no time zone of that name. Send one such as Europe/Berlin, or a large city in your time"
    " zone."
)


def _number(word: str) -> int | None:
    """Parse a list number typed by a user; None if it is not one."""
    is_number = word.isascii() and word.isdigit() and len(word) <= MAX_DIGITS
    return int(word) if is_number else None


@command(
    "memory", "show what I remember here, or make me forget it", changes=("forget", "on", "off")
)
async def memory(context: CommandContext) -> Reply | str:
    """List, export or forget the facts of a chat, or switch its memory on or off.

    In a group, each member may read all and forget single facts; the rest is for admins.
    """
    book, chat = context.parts.store.memory, context.chat
    match context.argument.casefold().split():
        case ["forget", "all"]:
            await check_admin(context)
            await book.forget_all(chat)
            return ALL_FORGOTTEN
        case ["forget", *words]:
            numbers = [number for word in words if (number := _number(word)) is not None]
            if len(numbers) < len(words):
                return UNKNOWN_FACT
            known = [str(number) for number in numbers if await book.forget(chat, number)]
            nothing = UNKNOWN_FACT if words else WHICH_FACT
            return FORGOTTEN.format(what=", ".join(known)) if known else nothing
        case ["on" | "off" as word]:
            await check_admin(context)
            await book.switch(chat, on=word == "on")
            return SWITCHED_ON if word == "on" else SWITCHED_OFF
        case ["export"]:
            return _exported(await book.of_chat(chat))
        case _:
            return await _listed(context.parts, chat)


async def _listed(parts: Parts, chat: ChatId) -> str:
    facts = await parts.store.memory.of_chat(chat)
    if not parts.uses_memory:
        state = NOT_USED
    elif not (days := parts.store.retention_days):
        state = KEEPS_NOTHING
    elif await parts.store.memory.is_off(chat):
        state = IS_OFF
    else:
        state = LASTS.format(days=days) if facts else NOTHING
    if not facts:
        return state
    lines = [OURS if chat.is_group else MINE, *map(_fact, facts[-LISTED_FACTS:])]
    if len(facts) > LISTED_FACTS:
        lines.append(OLDER.format(count=len(facts) - LISTED_FACTS))
    return "\n".join((*lines, "", HOW, state))


def _exported(facts: Sequence[Fact]) -> Reply:
    if not facts:
        return Reply(NOTHING)
    text = "".join(f"{_fact(fact)}\n" for fact in facts)
    file = Attachment("memory.txt", "text/plain", text.encode(errors="replace"))
    return Reply(EXPORTED.format(count=len(facts)), (file,))


def _fact(fact: Fact) -> str:
    until = "" if fact.expires_at is None else f", ⏱ {day(fact.expires_at)}"
    return f"{fact.number}. {fact.text} ({day(fact.said_at)}{until})"


@command("reminders", "show your reminders, or cancel one", changes=("cancel",))
async def reminders(context: CommandContext) -> str:
    """List a person's reminders, or cancel one by its number.

    In a group, list only the reminders of this group: the members must not read the others.
    """
    book, person, chat = context.parts.store.reminders, context.author.aci, context.chat
    match context.argument.casefold().split():
        case ["cancel", *words]:
            number = _number(words[0]) if len(words) == 1 else None
            cancelled = await book.cancel(person, chat, number or 0)
            return f"Cancelled: {_beginning(cancelled.text)}." if cancelled else UNKNOWN_REMINDER
    found = await book.of(person, chat)
    if not found:
        return NO_REMINDERS
    lines = [_reminder(one, chat) for one in found]
    lines.append("!reminders cancel and its number cancels one.")
    if zone := await book.zone_of(person):
        lines.append(f"These are times in {zone}; !timezone changes that.")
    else:
        lines.append(
            "Times are in UTC: I do not know your time zone. Send !timezone and your city."
        )
    return "\n".join(lines)


def _reminder(reminder: StoredReminder, chat: ChatId) -> str:
    at = from_ms(reminder.due_at).astimezone(zone_named(reminder.zone))
    marks = "❓" if reminder.is_question else "⏰"
    marks += "✓" * reminder.is_delivered + "🔁" * bool(reminder.repeat)
    line = f"{reminder.number}. {marks} {at:%Y-%m-%d %H:%M} {_beginning(reminder.text)}"
    return line if reminder.chat == chat else f"{line} (in a group)"


def _beginning(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = one_line(text)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


@command("timezone", "set your time zone by the name of a city", changes="with_argument")
async def timezone(context: CommandContext) -> str:
    """Show or change a person's time zone."""
    parts, person = context.parts, context.author.aci
    now = datetime.fromtimestamp(parts.clock(), UTC)
    if not context.argument:
        known = await parts.store.reminders.zone_of(person)
        return NO_ZONE if known is None else _zone(known, now)
    if len(context.argument) > ZONE_CHARACTERS:
        return UNKNOWN_ZONE
    try:
        zone = await parts.move_reminders(person, context.argument, now)
    except InvalidArguments:
        return UNKNOWN_ZONE
    return f"{_zone(zone, now)}\n{MOVED}"


def _zone(zone: str, now: datetime) -> str:
    return f"Your time zone is {zone}; it is {now.astimezone(zone_named(zone)):%H:%M} there now."
