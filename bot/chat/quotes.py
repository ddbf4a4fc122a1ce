"""Quotes in messages. Author and words of a quote come from the sender's phone alone.

So a quote counts as the bot's words only if the store has them. Words of the message's author are
the author's anyway, and all others are marked as a stranger's.
"""

import re
import unicodedata
from dataclasses import replace
from typing import Final

from bot.signal.markdown_rules import with_formulas
from conversation_store.models import AcceptedMessage, Quote, ReceivedMessage, ReceivedQuote
from conversation_store.outbox import OutboxStore
from conversation_store.reminders import ReminderStore
from tools.base import UNTRUSTED, mark

MAX_CHARACTERS: Final = 300
MAX_MARKED_BYTES: Final = 2_000
"""UTF-8 bytes of the quoted characters and the frame."""

BELL: Final = "⏰ "
"""Before the words of a reminder."""

_OTHERS: Final = "a quote"
_CLAIMED: Final = "a quote of you"
UNSEEN: Final = "that you cannot see, unless it is above"
_YOURS: Final = "[in reply to your message: “"

FILE, FILE_NAME, RECORDING = "a file", "a file name", "a recording"
"""Frames around what people attach; the first line inside is the name of the file."""
KEPT: Final = "[This file is PATH in the workspace.]"

_REACTED: Final = " to your message: “"
_REACTED_CHARACTERS: Final = 60
"""Length of the words of an answer in a line about a reaction."""

_BOTS_WORDS: Final = re.compile(
    rf"{re.escape(_YOURS)}[^\]]{{0,{MAX_CHARACTERS + 2}}}\]"
    rf"|(?<={re.escape(_REACTED)})[^\]]{{0,{_REACTED_CHARACTERS + 2}}}\]"
    rf"|(?<={re.escape(f'{UNTRUSTED}{_CLAIMED}, begins here: ')})"
    rf"[^\n]{{0,200}}\n[^\n]{{0,{MAX_CHARACTERS + 10}}}"
)
"""Real or claimed words of the bot in a quote; the beginning of a frame stays."""

_FILE_NAMES: Final = re.compile(
    "|".join(
        rf"(?<={re.escape(f'{UNTRUSTED}{frame}, begins here: ')})[^\n]{{0,200}}\n[^\n]{{0,300}}"
        for frame in (FILE, FILE_NAME, RECORDING)
    )
    + "|"
    + re.escape(KEPT).replace("PATH", r"[^\n]{1,300}?")
)


QUOTE_CHARACTERS: Final = 200
"""Length of the quoted text in an answer."""

_BOXES: Final = "☐☑"
"""The boxes that rendering puts before tasks in a list."""

_PASSED_OVER: Final = frozenset({"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Zl", "Zp", "Zs"})


async def checked(
    message: ReceivedMessage, sayings: OutboxStore, bells: ReminderStore
) -> ReceivedMessage:
    """Check the quote of a message if it claims to quote the bot.

    The bot has said the words if its message with that timestamp in that chat contains them,
    apart from punctuation and Markdown. The store also knows the words of reminders. Other quotes
    need no query of the store.
    """
    quote = message.quote
    if quote is None or quote.timestamp is None or not (quote.by_bot and quote.text):
        return message
    said = await sayings.said(message.chat, quote.timestamp)
    if not said and (bell := await bells.sent_as(message.chat, quote.timestamp)) is not None:
        known = replace(quote, text=BELL + bell.text, verbatim=True, reminder=bell.number)
        return replace(message, quote=known)
    quoted = _letters(quote.text)
    is_said = quoted in _letters(said) or quoted in _letters(with_formulas(said))
    return replace(message, quote=replace(quote, verbatim=is_said))


def reply(message: ReceivedMessage, quote: ReceivedQuote) -> str:
    """Return the quote of a message, to precede the message's own words.

    Words of other people are marked as a stranger's, because the sender's phone can invent them.
    """
    whose, frame = "somebody's message", _OTHERS
    if quote.by_bot:
        whose, frame = "your message", _CLAIMED
    elif quote.author == message.author:
        whose = "an earlier message of mine"
    quoted = shortened(one_line(quote.text), MAX_CHARACTERS)
    if quote.file:
        is_shown = any(file.quoted for file in message.files)
        whose += f", a {quote.file} {'of which you get a small copy' if is_shown else UNSEEN}"
        quoted = shortened(one_line(f"{quote.file_name or ''} {quote.text}"), MAX_CHARACTERS)
    if not quoted:
        return f"[in reply to {whose}] "
    if quote.verbatim or (quote.author == message.author and not quote.by_bot):
        number = f"[that was reminder {quote.reminder}] " if quote.reminder else ""
        return f"[in reply to {whose}: “{quoted}”] {number}"
    if quote.by_bot:
        whose = "what is said to be your message"
    return f"[in reply to {whose}:]\n{mark(quoted, frame, MAX_MARKED_BYTES)}\n"


def answer_to(question: str) -> str:
    """Return the line before an answer to a question of the bot; the model wrote the question."""
    return f"{_YOURS}{shortened(one_line(question), MAX_CHARACTERS)}”] "


def reacted(emoji: str, answer: str, name: str = "") -> str:
    """Return the line that tells of a reaction to an answer; in a group with the person's name."""
    words = shortened(one_line(answer), _REACTED_CHARACTERS)
    return f"[{name}{' ' if name else ''}reacted {emoji}{_REACTED}{words}”]"


def own_words(content: str) -> str:
    """Return a person's text without words of the bot and names of files.

    The model wrote the former, and perhaps strangers the latter.
    """
    return _FILE_NAMES.sub("", _BOTS_WORDS.sub("", content))


def one_line(text: str) -> str:
    """Return a text on one line, without characters that could end the frame around it."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def shortened(text: str, most: int) -> str:
    """Return a text on one line, cut to so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


def _letters(text: str) -> str:
    """Return a text without the parts that rendering, a phone or a reader may change.

    Emoji, tags and letters in boxes stay: a model reads words in them.
    """
    return "".join(filter(_is_kept, text))


def _is_kept(character: str) -> bool:
    if character.isascii() or character.isalnum():
        return character.isalnum()
    return character not in _BOXES and unicodedata.category(character) not in _PASSED_OVER


def quote_of(accepted: AcceptedMessage) -> Quote | None:
    """Return the quote for an answer; phones know a message by its first timestamp."""
    message = accepted.message
    if message.kind == "scheduled":
        return None  # a scheduled question is on no phone
    timestamp = message.target_timestamp or message.timestamp
    return Quote(timestamp, message.author, message.text[:QUOTE_CHARACTERS])
