"""The question about a call: all that will run, as people can read it.

A heading, then each argument that differs from its default: on one line as JSON, or as a block with
a bar before each line, so that nothing inside can pose as the bot's own words. Only characters that
a phone would hide or move are spelt out (`tools.display`). Two calls never read the same.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from pydantic import BaseModel

from tools.base import InvalidArguments, Tool, first_sentence
from tools.display import script_of, shown, visible

MAX_QUESTION_BYTES: Final = 32_768
"""About twenty pages."""

MAX_DESCRIPTION_CHARACTERS: Final = 200
MAX_INDENT: Final = 24
"""Spaces before a line of a block that are shown as they are; more could push it out of sight."""

MAX_EMPTY_LINES: Final = 2
"""Empty lines in a row that are shown as they are."""

MAX_MIXED: Final = 3
BAR: Final = "│ "
"""Stands before each line of a block; text of the bot never begins with it."""

RUN: Final = "Run {tool}? {what}"
ADDRESS: Final = (
    "May {tool} open this address? Nobody named it here: the model made it up after it read what"
    " strangers wrote. It could carry away what was said in this chat."
)
MIXED: Final = "letters of several alphabets stand in one word and may look alike: {what}"
LABELS: Final = frozenset(
    {
        "arguments:", "at:", "code:", "command:", "number:", "question:", "repeat:", "text:",
        "timeout_seconds:", "url:", "zone:",
    }
)  # fmt: skip
"""Names of the bot's own arguments that are translated."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD: Final = re.compile(r"[^\W\d_]{2,64}")
_ALPHABETS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})
"""Alphabets with letters that look like those of another one."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument in a question.

    Attributes:
        value: JSON on one line, or a block; empty if it is told in words.
        words: sentences of the bot that tell it.
    """

    label: str
    value: str
    words: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CallQuestion:
    """A question about a call; `text` never loses anything, in any language."""

    heading: str
    arguments: Sequence[Argument]
    hints: Sequence[str] = ()

    def text(self, say: Callable[[str], str] = str) -> str:
        """Return the question; `say` translates the bot's own sentences."""
        lines = [say(self.heading)]
        for one in self.arguments:
            label = say(one.label) if one.label in LABELS else one.label
            value = "; ".join(map(say, one.words)) or one.value
            lines.append(f"{label}\n{value}" if value.startswith(BAR) else f"{label} {value}")
        if self.hints:
            lines.append(f"⚠️ {'; '.join(map(say, self.hints))}")
        return "\n".join(lines)


def question(tool: Tool, arguments: Any, hints: Sequence[str] = ()) -> CallQuestion:
    """Return the question about a call, at most `MAX_QUESTION_BYTES` long.

    Raises:
        InvalidArguments: it would be too long.
        TypeError: the arguments have no names.
    """
    is_model = isinstance(arguments, BaseModel)
    named = arguments.model_dump(mode="json", exclude_defaults=True) if is_model else arguments
    if not isinstance(named, Mapping):
        raise TypeError("arguments without names cannot be shown to a person")
    written = json.dumps(named, ensure_ascii=False)
    if _fits(written):  # spelling out only makes it longer
        listed = [_argument(tool, name, value) for name, value in named.items()]
        mixed = list(dict.fromkeys(_mixed(written)))[:MAX_MIXED]
        careful = [*map(visible, hints), *([MIXED.format(what=", ".join(mixed))] if mixed else ())]
        asked = CallQuestion(_heading(tool, arguments), listed, careful)
        if _fits(asked.text()):
            return asked
    raise InvalidArguments(
        f"Not run: the arguments of {tool.name} are too long to be shown to the person who has to "
        "allow the call. Send less at once."
    )


def _heading(tool: Tool, arguments: Any) -> str:
    if tool.address is not None and not tool.side_effects:
        return ADDRESS.format(tool=tool.name)
    if tool.question is not None:
        return visible(tool.question(arguments))
    description = " ".join(first_sentence(tool.description).split())
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        description = f"{description[:MAX_DESCRIPTION_CHARACTERS]}…"
    return RUN.format(tool=tool.name, what=visible(description))


def _argument(tool: Tool, name: str, value: object) -> Argument:
    label = f"{name if _PLAIN_NAME.fullmatch(name) else shown(name)}:"
    in_words = tool.told.get(name)
    words = () if in_words is None else tuple(in_words(value))
    if words:
        return Argument(label, "", words)
    if isinstance(value, str) and value != json.dumps(value, ensure_ascii=False)[1:-1]:
        return Argument(label, _block(value))
    return Argument(label, shown(value))


def _block(text: str) -> str:
    """Return a text of several lines, each behind a bar."""
    lines: list[str] = []
    for line, repeated in groupby(text.split("\n")):
        count = len([*repeated])
        if not line and count > MAX_EMPTY_LINES:
            lines.append(f"⟨{count:,} empty lines⟩")
        else:
            lines += [_line(line)] * count
    return "\n".join(f"{BAR}{line}" for line in lines)


def _line(line: str) -> str:
    """Return a line of a block: its indentation as it is, its end visible."""
    words = line.strip(" ")
    indent, end = len(line) - len(line.lstrip(" ")), len(line) - len(line.rstrip(" "))
    if not words or indent > MAX_INDENT:
        words, indent = line.rstrip(" "), 0
    ending = f"⟨{end:,} spaces⟩" if end else ""
    return f"{' ' * indent}{visible(words)}{ending}"


def _mixed(written: str) -> Iterator[str]:
    """Yield the words that mix alphabets, such as a Latin word with a Cyrillic a."""
    for word in () if written.isascii() else _WORD.findall(written):
        if len({script_of(letter) for letter in word} & _ALPHABETS) > 1:
            yield word


def _fits(text: str) -> bool:
    return len(text.encode(errors="replace")) <= MAX_QUESTION_BYTES
