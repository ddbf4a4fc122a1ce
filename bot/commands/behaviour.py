"""The bot's behaviour in a chat: `!instructions`, `!language` and `!catchup`."""

from typing import Final

from bot.commands.base import CommandContext, Reply, command, without_argument
from bot.language.catalogs import NAMES, code_of
from conversation_store.heard import CatchUpStore
from conversation_store.models import ChatId

MAX_CHARACTERS: Final = 1_000
NO_INSTRUCTIONS: Final = "There are no instructions here."
SHOWN: Final = "I follow these instructions here:"
HOW: Final = (
    "Send !instructions and how I should behave here, such as: answer in German, briefly, as a"
    " tutor."
)
END: Final = "!instructions off ends that."
SET: Final = "From now on I follow this here:"
DISAPPEARS: Final = "That ends when your message disappears."
STAYS: Final = "That holds until !instructions off."
INSTRUCTIONS_ENDED: Final = "From now on I behave as usual here."
TOO_LONG: Final = "That is too long: please keep it within {most} characters. It has {count}."

AUTOMATIC: Final = "auto"
HOW_TO_CHOOSE: Final = (
    "Send !language and one of: {codes}. With auto I use the language in which you write."
)
UNKNOWN_LANGUAGE: Final = "I do not speak that language. I speak: {codes}."
CHOSEN: Final = (
    "From now on I speak English here. The model answers in the language in which you write."
)
AS_WRITTEN: Final = "From now on I use the language in which you write."
NOW_CHOSEN: Final = "I speak {language} here, because somebody chose it."
NOW_HEARD: Final = "I speak {language} here, because you write in it."

ON: Final = "on"
OFF: Final = "off"
IN_GROUP: Final = "Please send that in the group that you mean."
KEPT: Final = (
    "I keep what people who may talk to me write in this group, for at most {days} days and no"
    " longer than messages last here. So I can tell members what they have missed since they last"
    " wrote: here, or in private to current members. I keep nothing that other people write."
)
HOW_TO_END: Final = (
    "An admin ends that with !catchup off, which deletes everything that I have kept."
)
NOT_KEPT: Final = "I keep nothing here to tell members what they have missed."
HOW_TO_BEGIN: Final = "An admin changes that with !catchup on."
CATCH_UP_ENDED: Final = (
    "From now on I keep nothing here for that. I have deleted everything that I had kept, and"
    " forgotten my answers that told of it."
)
KEEPS_NOTHING: Final = (
    "I am set up to forget everything after an answer, so I cannot tell what people missed."
)
USAGE: Final = "Send !catchup on or !catchup off."


@command(
    "instructions",
    "tell me how to behave in this chat: language, tone, role",
    allowed="group_admins",
    urgent=without_argument,
)
async def instructions(context: CommandContext) -> Reply:
    """Show the instructions of a chat, or change them; they outlive `!clear`."""
    book, wanted = context.parts.store.instructions, context.argument
    if not wanted:
        kept = await book.of_chat(context.chat)
        if kept is None:
            return Reply(f"{NO_INSTRUCTIONS}\n{HOW}")
        return Reply("\n".join((SHOWN, _quoted(kept.text), END)))
    if wanted.casefold() == OFF:
        return Reply(INSTRUCTIONS_ENDED if await book.end(context.chat) else NO_INSTRUCTIONS)
    if len(wanted) > MAX_CHARACTERS:
        return Reply(TOO_LONG.format(most=MAX_CHARACTERS, count=len(wanted)))
    kept = await book.put(context.chat, wanted, context.inbox_id)
    if kept is None:
        return Reply("")  # the message was deleted
    lasts = STAYS if kept.expires_at is None else DISAPPEARS
    return Reply("\n".join((SET, _quoted(kept.text), lasts)))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


@command("language", "choose the language of my own messages", urgent=without_argument)
async def language(context: CommandContext) -> Reply:
    """Choose a language by its code or name, or show the present one."""
    languages, chat = context.parts.languages, context.chat
    codes = ", ".join(f"{code} ({name})" for code, name in NAMES.items())
    wanted = context.argument.casefold()
    if not wanted:
        sentence = NOW_CHOSEN if languages.is_chosen(chat) else NOW_HEARD
        now = sentence.format(language=NAMES[languages.of(chat)])
        return Reply("\n".join((now, HOW_TO_CHOOSE.format(codes=codes))))
    if wanted == AUTOMATIC:
        await languages.choose(chat, None)
        return Reply(AS_WRITTEN)
    if (code := code_of(wanted)) is None:
        return Reply(UNKNOWN_LANGUAGE.format(codes=codes))
    await languages.choose(chat, code)
    return Reply(CHOSEN)


def _only_tells(argument: str) -> bool:
    return argument.casefold() not in {ON, OFF}


@command(
    "catchup",
    "in a group: let members ask me what they have missed",
    allowed="group_admins",
    urgent=_only_tells,
)
async def catchup(context: CommandContext) -> Reply:
    """Say whether the bot keeps what people write in a group, or change that.

    The answer also tells the group about it.
    """
    book, chat = context.parts.store.catch_up, context.chat
    if not chat.is_group:
        return Reply(IN_GROUP)
    match context.argument.casefold():
        case "":
            return Reply(await _what_is_kept(book, chat))
        case "off":
            await book.switch_off(chat)
            return Reply(CATCH_UP_ENDED)
        case "on" if book.kept_days:
            await book.switch_on(chat)
            return Reply(await _what_is_kept(book, chat))
        case "on":
            return Reply(KEEPS_NOTHING)
        case _:
            return Reply(USAGE)


async def _what_is_kept(book: CatchUpStore, chat: ChatId) -> str:
    if await book.is_on(chat) and book.kept_days:
        return f"{KEPT.format(days=book.kept_days)}\n{HOW_TO_END}"
    return f"{NOT_KEPT}\n{HOW_TO_BEGIN}"
