r"""What a chat model writes as Markdown, as Signal shows it.

CommonMark, read by markdown-it, with tables, `~~strikethrough~~` and Signal's `||spoiler||`. What
a phone cannot show as a style becomes words: bullets, `text (address)` for links, quotes behind
`> `, a table as a grid where it is narrow, else as lines. A line break is a line break. Chat models
bend Markdown in ways of their own: see `markdown_rules`.
"""

import re
from typing import Final

from bot.messaging.markdown_page import Page
from bot.messaging.markdown_rules import MAX_NESTING, parser
from bot.messaging.styled import well_formed
from conversation_store.models import StyledText

MAX_CHARACTERS: Final = 64_000
"""What is longer stays as it was typed: Signal shows no more in one answer."""

MAX_MARKERS: Final = 8_000
"""The same for characters that may be markup, because each of them costs the parser time."""

MAX_BRACKETS: Final = 3_000
"""The same for brackets that may open a link, which cost most."""

_MARKERS: Final = "\n*_`~|[]<>&#\\-+$:"

_STOPS: Final = f"{_MARKERS}!=%@^{{}}\r"

_WITHOUT_MARKUP: Final = re.compile(
    r"(?!\d+[.)]|[-+=])[^\s\\`*_~|#\[\]<>&!$](?:[^\s\\`*_~|#\[\]<>&!$]| (?! ))*+(?<! )"
)
"""A line that means itself, as most short answers do."""


def render(text: str) -> StyledText:
    """Return Markdown as the text and the styles that Signal shows.

    What is too long, too deep or too dense with markup to be read within a moment stays as it
    was typed.
    """
    text = well_formed(text).replace("\r\n", "\n").replace("\r", "\n")
    if _takes_too_long(text) or _WITHOUT_MARKUP.fullmatch(text):
        return StyledText(text)
    tokens = parser().parse(text)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return StyledText(text)  # the parser drops what is deeper
    page = Page(text)
    page.show_blocks(tokens)
    return page.styled()


def markers_in(text: str) -> int:
    """Return how many characters of a text may be markup; they cost the parser most time."""
    return sum(map(text.count, _MARKERS))


def stops_in(text: str) -> int:
    """Return at how many characters of a text the parser stops, some 10 µs each."""
    return sum(map(text.count, _STOPS))


def _takes_too_long(text: str) -> bool:
    return (
        len(text) > MAX_CHARACTERS
        or markers_in(text) > MAX_MARKERS
        or text.count("[") > MAX_BRACKETS
    )
