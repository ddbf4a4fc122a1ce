"""What a message replies to. A quote's author and words are what its sender's phone says.

So the bot's own words count as its own only where the store has them, the author's own are the
author's anyway, and all others are marked as a stranger's.
"""

import re
import unicodedata
from dataclasses import replace
from typing import Final, Protocol

from bot.chat.bells import BELL
from conversation_store.models import ChatId, ReceivedMessage, ReceivedQuote, StoredReminder
from tools.results import UNTRUSTED, mark

MAX_CHARACTERS: Final = 300
MAX_MARKED_BYTES: Final = 2_000
"""So many characters, as UTF-8, and the frame."""

_OTHERS: Final = "a quote"
_CLAIMED: Final = "a quote of you"
_YOURS: Final = "[in reply to your message: “"

_BOTS_WORDS: Final = re.compile(
    rf"{re.escape(_YOURS)}[^\]]{{0,{MAX_CHARACTERS + 2}}}\]"
    rf"|(?<={re.escape(f'{UNTRUSTED}{_CLAIMED}, begins here: ')})"
    rf"[^\n]{{0,200}}\n[^\n]{{0,{MAX_CHARACTERS + 10}}}"
)
"""What is quoted of the bot, or is said to be; of a frame its beginning stays."""


_BOXES: Final = "☐☑"
"""How rendering shows tasks in a list."""

_PASSED_OVER: Final = frozenset({"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Zl", "Zp", "Zs"})


class Sayings(Protocol):
    """What the bot has said. Implemented by `OutboxStore`."""

    async def said(self, chat: ChatId, signal_timestamp: int) -> str:
        """Return what the model said in a message of the bot; empty where that is not known."""
        ...


class Bells(Protocol):
    """What people were reminded of. Implemented by `ReminderStore`."""

    async def sent_as(self, chat: ChatId, signal_timestamp: int) -> StoredReminder | None:
        """Return what a message of the bot reminded somebody of; None where it is not known."""
        ...


async def checked(message: ReceivedMessage, sayings: Sayings, bells: Bells) -> ReceivedMessage:
    """Return a message with what is true of its quote, where that is said to be of the bot.

    The bot has said the words when they stand in the message of that timestamp which it sent to
    the chat, whatever their punctuation and Markdown. Of a reminder the store knows what it says.
    Only a message that quotes the bot costs a look into the store.
    """
    quote = message.quote
    if quote is None or quote.timestamp is None or not (quote.by_bot and quote.text):
        return message
    said = await sayings.said(message.chat, quote.timestamp)
    if not said and (bell := await bells.sent_as(message.chat, quote.timestamp)) is not None:
        known = replace(quote, text=BELL + bell.text, verbatim=True, reminder=bell.number)
        return replace(message, quote=known)
    return replace(message, quote=replace(quote, verbatim=_letters(quote.text) in _letters(said)))


def reply(message: ReceivedMessage, quote: ReceivedQuote) -> str:
    """Return what a message replies to, to stand before its own words.

    What neither its author nor the bot has said is marked as a stranger's: it may be anybody's,
    and reads as the sender's phone has made it.
    """
    whose, frame = "somebody's message", _OTHERS
    if quote.by_bot:
        whose, frame = "your message", _CLAIMED
    elif quote.author == message.author:
        whose = "an earlier message of mine"
    quoted = one_line(quote.text)
    if len(quoted) > MAX_CHARACTERS:
        quoted = quoted[:MAX_CHARACTERS] + "…"
    if not quoted:
        return f"[in reply to {whose}{', an attachment' if quote.has_files else ''}] "
    if quote.verbatim or (quote.author == message.author and not quote.by_bot):
        number = f"[that was reminder {quote.reminder}] " if quote.reminder else ""
        return f"[in reply to {whose}: “{quoted}”] {number}"
    if quote.by_bot:
        whose = "what is said to be your message"
    return f"[in reply to {whose}:]\n{mark(quoted, frame, MAX_MARKED_BYTES)}\n"


def without_bots_words(content: str) -> str:
    """Return what a person wrote without what it quotes of the bot, which the model chose."""
    return _BOTS_WORDS.sub("", content)


def one_line(text: str) -> str:
    """Return a text on one line that cannot be taken for the frame around it."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def _letters(text: str) -> str:
    """Return a text without what rendering, a phone or a reader may change of it.

    Emoji, tags and letters in boxes stay: a model reads words in them.
    """
    return "".join(filter(_is_kept, text))


def _is_kept(character: str) -> bool:
    if character.isascii() or character.isalnum():
        return character.isalnum()
    return character not in _BOXES and unicodedata.category(character) not in _PASSED_OVER
