"""Styles on a terminal.

Before a text is cut into rows, characters of no width mark where styles begin and end. Then the
marks of each row become the terminal's own sequences, so a style continues in the next row.
"""

import re
from collections.abc import Iterable
from typing import Final

from bot.messaging.styled import spans_of
from conversation_store.models import StyledText, TextStyle

_FIRST_MARK: Final = 0xF0000  # a plane for private use; removed from messages
_STYLES: Final = tuple(TextStyle)
_MARKS: Final = "".join(chr(_FIRST_MARK + number) for number in range(2 * len(_STYLES)))
_ANY_MARK: Final = re.compile(f"[{_MARKS}]")

_SGR: Final = {
    TextStyle.BOLD: ("\x1b[1m", "\x1b[22m"),
    TextStyle.ITALIC: ("\x1b[3m", "\x1b[23m"),
    TextStyle.STRIKETHROUGH: ("\x1b[9m", "\x1b[29m"),
    TextStyle.MONOSPACE: ("\x1b[33m", "\x1b[39m"),  # yellow: a terminal has only one font
    TextStyle.SPOILER: ("\x1b[7m", "\x1b[27m"),
}
"""On and off, by ECMA-48 (SGR)."""


def is_mark(character: str) -> bool:
    """Whether a character is a mark, which has no width."""
    return _MARKS[0] <= character <= _MARKS[-1]


def marked(styled: StyledText) -> str:
    """Return a text with a mark wherever a style begins or ends."""
    opening: dict[int, list[str]] = {}
    closing: dict[int, list[str]] = {}
    for span in spans_of(styled.text, styled.styles):
        number = 2 * _STYLES.index(span.style)
        opening.setdefault(span.start, []).append(_MARKS[number])
        closing.setdefault(span.end, []).append(_MARKS[number + 1])
    pieces: list[str] = []
    for place in range(len(styled.text) + 1):
        pieces += closing.get(place, ())
        pieces += opening.get(place, ())
        pieces += _ANY_MARK.sub("", styled.text[place : place + 1])
    return "".join(pieces)


def painted(rows: Iterable[str], *, colour: bool) -> list[str]:
    """Return marked rows with a terminal's sequences, or plain ones."""
    if not colour:
        return [_ANY_MARK.sub("", row) for row in rows]
    lasting: dict[TextStyle, None] = {}
    done = []
    for row in rows:
        begun = "".join(_SGR[style][0] for style in lasting)
        shown = _ANY_MARK.sub(lambda mark: _switched(mark[0], lasting), row)
        done.append(begun + shown + "".join(_SGR[style][1] for style in lasting))
    return done


def _switched(mark: str, lasting: dict[TextStyle, None]) -> str:
    """Record that a style begins or ends, and return the sequence for it."""
    number, ends = divmod(_MARKS.index(mark), 2)
    style = _STYLES[number]
    if ends:
        lasting.pop(style, None)
    else:
        lasting[style] = None
    return _SGR[style][ends]
