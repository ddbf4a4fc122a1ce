"""Text as Signal shows it: plain words, and ranges of them that look different."""

from dataclasses import dataclass
from enum import StrEnum


class TextStyle(StrEnum):
    """How a range looks, by signal-cli's names."""

    BOLD = "BOLD"
    ITALIC = "ITALIC"
    STRIKETHROUGH = "STRIKETHROUGH"
    MONOSPACE = "MONOSPACE"
    SPOILER = "SPOILER"


@dataclass(frozen=True, slots=True)
class StyleRange:
    """A range of a text that has a style; `start` and `length` count UTF-16 code units."""

    start: int
    length: int
    style: TextStyle


@dataclass(frozen=True, slots=True)
class StyledText:
    """A text and its styles, in the order of their starts; ranges may nest and overlap."""

    text: str
    styles: tuple[StyleRange, ...] = ()
