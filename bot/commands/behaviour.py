"""The bot's behaviour in a chat: `!instructions`, `!language` and `!catchup`."""

from typing import Final

from bot.commands.base import CommandContext, Refused, command
from bot.language.catalogs import NAMES, code_of

MAX_CHARACTERS: Final = 1_000
NO_INSTRUCTIONS: Final = "There are no instructions here."
SHOWN: Final = "I follow these instructions here:"
HOW: Final = (
    "Send !instructions and how I should behave here, such as: answer in German, briefly, as a"
    " tutor."
)
END: Final = "!instructions off ends them."
SET: Final = "From now on I follow these instructions here:"
DISAPPEARS: Final = "I forget them when your message disappears."
STAYS: Final = "I follow them until you send !instructions off."
INSTRUCTIONS_ENDED: Final = "From now on I behave as usual here."
TOO_LONG: Final = "That is too long: please keep it within {most} characters. It has {count}."

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
    "From now on I keep no messages of this group for catching up. I have deleted everything that"
    " I had kept, and forgotten my answers about it."
)
KEEPS_NOTHING: Final = (
    "I am set up to forget everything after an answer, so I cannot tell what people missed."
)
USAGE: Final = "Send !catchup on or !catchup off."


WHEN: Final = {
    "on": "I answer with a voice note here, with the words below it.",
    "off": "I answer in writing here.",
    "auto": "I answer a voice note with a voice note here, and other messages in writing.",
}
NO_VOICE: Final = (
    "I have no voice here: my operator has set up no text-to-speech (LLM__SPEECH_MODEL)."
)
VOICE_USAGE: Final = "Send !voice on, !voice off or !voice auto."


@command(
    "instructions",
    "tell me how to behave in this chat: language, tone, role",
    allowed="group_admins",
    changes="with_argument",
)
async def instructions(context: CommandContext) -> str:
    """Show the instructions of a chat, or change them; `!clear` keeps them."""
    book, wanted = context.parts.store.instructions, context.argument
    if not wanted:
        kept = await book.of_chat(context.chat)
        if kept is None:
            return f"{NO_INSTRUCTIONS}\n{HOW}"
        return f"{SHOWN}\n{_quoted(kept.text)}\n{END}"
    if wanted.casefold() == "off":
        return INSTRUCTIONS_ENDED if await book.end(context.chat) else NO_INSTRUCTIONS
    if len(wanted) > MAX_CHARACTERS:
        return TOO_LONG.format(most=MAX_CHARACTERS, count=len(wanted))
    kept = await book.put(context.chat, wanted, context.inbox_id)
    if kept is None:
        return ""  # the message was deleted
    lasts = STAYS if kept.expires_at is None else DISAPPEARS
    return f"{SET}\n{_quoted(kept.text)}\n{lasts}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())


@command("language", "choose the language of my own messages", changes="with_argument")
async def language(context: CommandContext) -> str:
    """Choose a language by its code or name, or show the current one."""
    languages, chat = context.parts.languages, context.chat
    codes = ", ".join(f"{code} ({name})" for code, name in NAMES.items())
    wanted = context.argument.casefold()
    if not wanted:
        now = NAMES[languages.of(chat)]
        chosen = f"I speak {now} here, because it was chosen with !language."
        heard = f"I speak {now} here, because you write in it."
        if not languages.has_heard(chat):
            heard = f"I speak {now} here until you write in one of my other languages."
        how = (
            f"Send !language and one of: {codes}. With auto I use the language in which you write."
        )
        return f"{chosen if languages.is_chosen(chat) else heard}\n{how}"
    if wanted == "auto":
        await languages.choose(chat, None)
        return "From now on I use the language in which you write."
    if (code := code_of(wanted)) is None:
        return f"I do not speak that language. I speak: {codes}."
    await languages.choose(chat, code)
    return "From now on I speak English here. The model answers in the language in which you write."


@command(
    "voice",
    "let me answer with voice notes: on, off, or auto",
    allowed="group_admins",
    changes=("on", "off", "auto"),
)
async def voice(context: CommandContext) -> str:
    """Show or choose when the bot speaks in a chat."""
    voices, chat = context.parts.voices, context.chat
    if voices is None:
        raise Refused(NO_VOICE)
    match context.argument.casefold():
        case "on" | "off" | "auto" as when:
            await voices.choose(chat, when)
        case "":
            pass
        case _:
            return VOICE_USAGE
    return f"{WHEN[voices.of(chat)]}\n{VOICE_USAGE}"


@command(
    "catchup",
    "in a group: let members ask me what they have missed",
    allowed="group_admins",
    changes=("on", "off"),
)
async def catchup(context: CommandContext) -> str:
    """Say whether the bot keeps the messages of a group, or change that.

    The answer also informs the group.
    """
    book, chat = context.parts.store.catch_up, context.chat
    if not chat.is_group:
        return IN_GROUP
    wanted = context.argument.casefold()
    if wanted == "off":
        await book.switch_off(chat)
        return CATCH_UP_ENDED
    if wanted == "on":
        if not book.kept_days:
            return KEEPS_NOTHING
        await book.switch_on(chat)
    elif wanted:
        return USAGE
    if await book.is_on(chat) and book.kept_days:
        return f"{KEPT.format(days=book.kept_days)}\n{HOW_TO_END}"
    return f"{NOT_KEPT}\n{HOW_TO_BEGIN}"
