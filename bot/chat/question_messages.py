"""A question as Signal messages that show all of it, and the text that says how to answer.

A short question is one message, a longer one up to `MAX_MESSAGES` numbered messages, and an even
longer one a text file. The last message says how to answer. A divided line has `⟨goes on⟩` at the
end of one message and at the beginning of the next. So a value that continues in the next message
cannot look like another argument. A question's own text cannot contain the mark (`tools.display`).
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from bot.signal.formatting import MAX_PART_BYTES
from bot.signal.messenger import Poll
from conversation_store.models import (
    Attachment,
    ChatId,
    QuestionTerms,
    StoredQuestion,
    StyledText,
    StyleRange,
    TextStyle,
)
from tools.display import visible
from tools.people import Choice
from tools.question import BAR

MAX_MESSAGES: Final = 5
FILE_NAME: Final = "question.txt"
GOES_ON: Final = "⟨goes on⟩"

IN_A_FILE: Final = (
    "Run {tool}? Its arguments are too long for a message. They are all in the file: please read"
    " it to the end before you answer."
)
ABOUT_MARKS: Final = "(Characters that a phone would hide or move are spelt out between ⟨ and ⟩.)"

MAX_POLL_CHARACTERS: Final = 100
"""Phones' limit for a poll's question and for each option."""

GRANT_DAYS: Final = 30
HOW_TO_ANSWER: Final = (
    "👍 or “yes” allows this, 👎 or “no” refuses it; or write what you want instead. No answer"
    " within {minutes} is a no."
)
HOW_TO_ALLOW: Final = (
    "♾️ or “always” allows {what} in this chat for {days} days without asking;"
    " !grants takes it back."
)
ADMIN_NEEDED: Final = "Only an admin of the bot can allow this."

HOW_TO_CHOOSE: Final = (
    "Reply to this message with a number, or in your own words. I wait for a day."
)
HOW_TO_CHOOSE_SEVERAL: Final = (
    "Reply to this message with one or several numbers, such as “1, 3”, or in your own words."
    " I wait for a day."
)
HOW_TO_WRITE: Final = "Reply to this message in your own words. I wait for a day."
HOW_TO_DECIDE: Final = (
    "This is my plan. 👍 this message or reply “yes”, and I carry it out; 👎 or “no”, and I drop"
    " it; or reply with what to change. I wait for a day."
)

NOT_YOURS: Final = "Only the person this is for, or an admin of the bot, can answer that question."
NOT_COUNTED: Final = "Only admins of the bot can allow this; your yes does not count."
TOO_LATE: Final = "That question is no longer open."
YES_OR_NO: Final = "Please answer the question with “yes” or “no”."
ONE_NUMBER: Final = "Please answer with one number from 1 to {count}, or in your own words."
SOME_NUMBERS: Final = (
    "Please answer with one or several numbers from 1 to {count}, or in your own words."
)
WHICH: Final = (
    "More than one of my questions is open, and your answer fits several. Please reply to the one"
    " that you mean."
)
REMINDER: Final = (
    "I am waiting for your 👍 or 👎 on my question above; then I will read this message."
)
STILL_OPEN: Final = (
    "My question above is still open; if this was your answer, please send it as a reply to the"
    " question."
)
OTHERS_WAIT: Final = (
    "My question above waits for an answer, for a few minutes at most; then I will read the other"
    " messages to me."
)
SAY_IT_TO_ME: Final = (
    "If that answers my question above, please mention me next to it, send it as a reply to the"
    " question, or react to the question."
)

_NUMBER_BYTES: Final = len(f"❓ ({MAX_MESSAGES}/{MAX_MESSAGES})\n".encode())


@dataclass(frozen=True, slots=True)
class QuestionMessage:
    """Message that shows a question or a part of it."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()


def how_to_answer(terms: QuestionTerms, *, minutes: float) -> list[str]:
    """Return sentences that say how to answer; `minutes` is the time limit about a call."""
    if terms.kind == "plan":
        return [HOW_TO_DECIDE]
    if terms.kind == "choice":
        how = HOW_TO_CHOOSE_SEVERAL if terms.multiple else HOW_TO_CHOOSE
        return [how if terms.options else HOW_TO_WRITE]
    said = [HOW_TO_ANSWER.format(minutes=f"{minutes:g} minutes")]
    if terms.covers:
        said.append(HOW_TO_ALLOW.format(what=visible(", ".join(terms.covers)), days=GRANT_DAYS))
    if terms.needs_admin:
        said.append(ADMIN_NEEDED)
    return said


def told_question(question: StoredQuestion) -> str:
    """Return the beginning of a question of the model with its options, for later requests."""
    return " / ".join(filter(None, (question.terms.text, *question.terms.options)))


def asked_back(terms: QuestionTerms) -> str:
    """Return the sentence for a person whose answer is unclear."""
    if terms.kind == "call":
        return YES_OR_NO
    return (SOME_NUMBERS if terms.multiple else ONE_NUMBER).format(count=len(terms.options))


def poll_of(chat: ChatId, choice: Choice) -> Poll | None:
    """Return a question as a poll, or None if it must be a message; only groups have polls."""
    texts = (choice.question, *choice.options)
    fits = all(len(text) <= MAX_POLL_CHARACTERS and "\n" not in text for text in texts)
    if not (chat.is_group and choice.options and fits):
        return None
    return Poll(choice.question, choice.options, choice.multiple)


def question_messages(
    tool: str, question: str, how_to_answer: str, *, say: Callable[[str], str] = str
) -> tuple[QuestionMessage, ...]:
    """Return the messages that show a question whole; the last one is to be answered.

    Args:
        say: translates a sentence of the bot.
    """
    about_marks = f"{say(ABOUT_MARKS)}\n" if "⟨" in question else ""
    ending = f"\n\n{about_marks}{how_to_answer}"
    room = MAX_PART_BYTES - _NUMBER_BYTES - _size(ending)
    parts = _divided(question, room)
    match parts:
        case [alone]:
            return (_in_monospace(f"❓ {alone}{ending}"),)
        case [*first, last] if len(parts) <= MAX_MESSAGES:
            texts = (*first, f"{last}{ending}")
            numbered = (
                f"❓ ({number}/{len(parts)})\n{text}" for number, text in enumerate(texts, start=1)
            )
            return tuple(map(_in_monospace, numbered))
    # Some programs take a text for Latin-1 unless it begins with a byte order mark.
    file = Attachment(FILE_NAME, "text/plain", question.encode("utf-8-sig"))
    in_a_file = say(IN_A_FILE.format(tool=tool))
    return (QuestionMessage(f"❓ {in_a_file}\n\n{how_to_answer}", (file,)),)


def _in_monospace(text: str) -> QuestionMessage:
    """Return a message in which the lines of a block have letters of one width."""
    styles: list[StyleRange] = []
    start = 0
    for is_block, lines in groupby(text.split("\n"), lambda line: line.startswith(BAR)):
        units = sum(_units(line) + 1 for line in lines)
        if is_block:
            styles.append(StyleRange(start, units - 1, TextStyle.MONOSPACE))
        start += units
    return QuestionMessage(text, styles=tuple(styles))


def styled_messages(parts: Sequence[StyledText], how_to_answer: str) -> tuple[QuestionMessage, ...]:
    """Return the messages that show a styled text; the last one is to be answered."""
    messages = [QuestionMessage(part.text, styles=tuple(part.styles)) for part in parts]
    last = f"{messages[-1].text}\n\n{how_to_answer}" if messages else how_to_answer
    if messages and _size(last) <= MAX_PART_BYTES:
        return (*messages[:-1], replace(messages[-1], text=last))
    return (*messages, QuestionMessage(how_to_answer))


def _divided(text: str, room: int) -> list[str]:
    """Divide a text into parts of so many bytes; stop above `MAX_MESSAGES` parts."""
    parts: list[str] = []
    while _size(text) > room and len(parts) < MAX_MESSAGES:
        fitting = text.encode()[: room - _size(GOES_ON)].decode(errors="ignore")
        line_end = fitting.rfind("\n")
        if line_end >= len(fitting) // 2:
            parts.append(text[:line_end])
            text = text[line_end + 1 :]
        else:
            end = _safe_end(text, len(fitting))
            parts.append(f"{text[:end]}{GOES_ON}")
            text = f"{GOES_ON}{text[end:]}"
    return [*parts, text]


def _safe_end(text: str, end: int) -> int:
    """Return the last index up to `end` that splits neither a mark nor a combined character."""
    mark = text.rfind("⟨", 0, end)
    if mark > text.rfind("⟩", 0, end):
        return mark
    while unicodedata.category(text[end]).startswith("M"):
        end -= 1
    return end


def _size(text: str) -> int:
    return len(text.encode())


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
