"""A message on the terminal phone: a bubble of rows, measured in terminal cells."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bot.demo.looks import is_mark, marked, painted
from conversation_store.models import Attachment, StyledText, StyleRange

SHARE_OF_THE_WIDTH: Final = 0.75
MIN_COLUMNS: Final = 28
KILO: Final = 1_000
MEGA: Final = 1_000_000
JOINER: Final = "\N{ZERO WIDTH JOINER}"
FRAME_COLOUR_OF_YOU: Final = "\x1b[36m"
FRAME_COLOUR_OF_THE_BOT: Final = "\x1b[32m"
DIM: Final = "\x1b[2m"
RESET: Final = "\x1b[0m"
QUOTE_MARK: Final = "┃ "

_LINE_ENDS: Final = re.compile("\r\n|[\r\u2028\u2029]")
_BIDI_CONTROLS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SKIN_TONES: Final = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"


@dataclass(frozen=True, slots=True)
class Bubble:
    """One message as a phone shows it.

    Attributes:
        timestamp: identifies the message, in ms.
        mine: written on this phone; shown at the right.
        time: of writing, ready to be shown.
        quote: the beginning of the message that it replies to, if any.
        note: what the phone itself says, without a frame.
    """

    timestamp: int
    mine: bool
    text: str
    time: str
    edited: bool = False
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()
    quote: str = ""
    note: bool = False

    @property
    def footer(self) -> str:
        """Who wrote it and when."""
        sender = "You" if self.mine else "Bot"
        return f"{sender} · {self.time}{' (edited)' if self.edited else ''}"


def render(bubble: Bubble, *, columns: int, colour: bool) -> list[str]:
    """Return the rows of a bubble and of its files, narrower than `columns`."""
    columns = max(columns, MIN_COLUMNS) - 1
    if bubble.note:
        notes = wrap(bubble.text, columns)
        return [f"{DIM}{row}{RESET}" for row in notes] if colour else notes
    width = int(columns * SHARE_OF_THE_WIDTH) - 4
    rows = wrap(clean(marked(StyledText(bubble.text, bubble.styles))), width)
    if bubble.quote:
        rows.insert(0, next(iter(wrap(f"{QUOTE_MARK}{clean(bubble.quote)}", width))))
    inner = max(map(cells, [*rows, bubble.footer]))
    margin = " " * (columns - inner - 4 if bubble.mine else 0)
    line = "─" * (inner - cells(bubble.footer))
    footer = f"{line} {bubble.footer} " if bubble.mine else f" {bubble.footer} {line}"
    start = FRAME_COLOUR_OF_YOU if bubble.mine else FRAME_COLOUR_OF_THE_BOT

    def frame(text: str) -> str:
        return f"{start}{text}{RESET}" if colour else text

    side = frame("│")
    return [
        margin + frame(f"╭{'─' * (inner + 2)}╮"),
        *(
            f"{margin}{side} {shown}{' ' * (inner - cells(row))} {side}"
            for row, shown in zip(rows, painted(rows, colour=colour), strict=True)
        ),
        margin + frame(f"╰{footer}╯"),
        *(row for file in bubble.attachments for row in wrap(_label(file), columns)),
    ]


def _label(file: Attachment) -> str:
    return f"\N{PAPERCLIP} {file.name} ({_size(len(file.data))})"


def _size(count: int) -> str:
    """A number of bytes as a phone shows it."""
    if count < KILO:
        return f"{count} bytes"
    return f"{count / KILO:.0f} kB" if count < MEGA else f"{count / MEGA:.1f} MB"


def clean(text: str) -> str:
    """Remove from a text what would control the terminal or reverse its direction."""
    text = _BIDI_CONTROLS.sub("", _LINE_ENDS.sub("\n", text)).expandtabs(4)
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if char != "\n" and unicodedata.category(char) in ("Cc", "Cs")
        else char
        for char in text
    )


def wrap(text: str, columns: int) -> list[str]:
    """Return the rows of a text, broken between words and inside long words."""
    return [row for line in text.split("\n") for row in _wrap_line(line, columns)]


def _wrap_line(line: str, columns: int) -> Iterator[str]:
    row = ""
    for word in re.findall(r"\s*\S+", line):
        if cells(row + word) <= columns:
            row += word
            continue
        if row:
            yield row
        *full, row = _cut(word.lstrip() if row else word, columns)
        yield from full
    yield row


def _cut(word: str, columns: int) -> Iterator[str]:
    row = ""
    for cluster in clusters(word):
        if row and cells(row + cluster) > columns:
            yield row
            row = ""
        row += cluster
    yield row


def clusters(text: str) -> list[str]:
    """Return the characters as people count them, with accents and joined emoji."""
    found: list[str] = []
    for char in text:
        if found and (found[-1].endswith(JOINER) or char in _SKIN_TONES or _width(char) == 0):
            found[-1] += char
        else:
            found.append(char)
    return found


def cells(text: str) -> int:
    """Return how many terminal cells a text takes (Unicode's UAX #11)."""
    return sum(map(_width, text))


def _width(char: str) -> int:
    if char.isascii():
        return 1
    if is_mark(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
