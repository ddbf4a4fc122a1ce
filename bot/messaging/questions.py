"""A question to a person as Signal messages that show all of it.

A short question is one message, a longer one is up to `MAX_MESSAGES` numbered ones, and what is
longer still is a text file. The last message says how to answer. Where a line is divided,
`⟨goes on⟩` stands at the end of one message and at the beginning of the next, so that no value
begins a message as if it were another argument; a question's own text cannot contain that
(`tools.display`).
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bot.messaging.formatting import MAX_PART_BYTES
from conversation_store.models import Attachment, StyledText, StyleRange

MAX_MESSAGES: Final = 5
FILE_NAME: Final = "question.txt"
GOES_ON: Final = "⟨goes on⟩"

IN_A_FILE: Final = (
    "Run {tool}? What it is called with is too long for messages. All of it is in the file: please"
    " read it to its end before you answer."
)
ABOUT_MARKS: Final = "(What stands between ⟨ and ⟩ a phone would hide or show elsewhere.)\n"

_NUMBER_BYTES: Final = len(f"❓ ({MAX_MESSAGES}/{MAX_MESSAGES})\n".encode())


@dataclass(frozen=True, slots=True)
class QuestionMessage:
    """One message of a question."""

    text: str
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()


def question_messages(tool: str, question: str, how_to_answer: str) -> tuple[QuestionMessage, ...]:
    """Return the messages that show a question whole; the last one is to be answered.

    Args:
        tool: name of the tool that is asked about.
        question: what it is going to do, with nothing hidden in it.
        how_to_answer: stands at the end.
    """
    ending = f"\n\n{ABOUT_MARKS if '⟨' in question else ''}{how_to_answer}"
    room = MAX_PART_BYTES - _NUMBER_BYTES - _size(ending)
    parts = _divided(question, room)
    match parts:
        case [alone]:
            return (QuestionMessage(f"❓ {alone}{ending}"),)
        case [*first, last] if len(parts) <= MAX_MESSAGES:
            texts = (*first, f"{last}{ending}")
            numbered = (
                f"❓ ({number}/{len(parts)})\n{text}" for number, text in enumerate(texts, start=1)
            )
            return tuple(map(QuestionMessage, numbered))
    # Some programs take a text for Latin-1 unless it begins with a byte order mark.
    file = Attachment(FILE_NAME, "text/plain", question.encode("utf-8-sig"))
    return (QuestionMessage(f"❓ {IN_A_FILE.format(tool=tool)}\n\n{how_to_answer}", (file,)),)


def styled_messages(parts: Sequence[StyledText], how_to_answer: str) -> tuple[QuestionMessage, ...]:
    """Return the messages that show a styled text; the last one is to be answered.

    Args:
        parts: of the text, each of a message's size at the most.
        how_to_answer: stands at the end.
    """
    messages = [QuestionMessage(part.text, styles=tuple(part.styles)) for part in parts]
    last = f"{messages[-1].text}\n\n{how_to_answer}" if messages else how_to_answer
    if messages and _size(last) <= MAX_PART_BYTES:
        return (*messages[:-1], replace(messages[-1], text=last))
    return (*messages, QuestionMessage(how_to_answer))


def _divided(text: str, room: int) -> list[str]:
    """Divide a text into parts of so many bytes; more than `MAX_MESSAGES` are not counted."""
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
    """Return a place at or before `end` that is not inside a mark, nor before a combining one."""
    mark = text.rfind("⟨", 0, end)
    if mark > text.rfind("⟩", 0, end):
        return mark
    while unicodedata.category(text[end]).startswith("M"):
        end -= 1
    return end


def _size(text: str) -> int:
    return len(text.encode())
