"""Parses a text as signal-cli-rest-api does in its styled mode."""

import re
from typing import Final

from bot.signal.formatting import Span, ranges_of
from conversation_store.models import StyleRange, TextStyle

_TOGGLES: Final = {
    "**": TextStyle.BOLD,
    "*": TextStyle.ITALIC,
    "~": TextStyle.STRIKETHROUGH,
    "||": TextStyle.SPOILER,
    "`": TextStyle.MONOSPACE,
}


def served(markup: str) -> tuple[str, tuple[StyleRange, ...]]:
    """Do what the server does with text in its styled mode, from the rules of its parser.

    A backslash in front of a marker's first character vanishes, and makes text of the marker that
    follows: of two asterisks or bars at once, if there are two. A bar alone is text. A marker
    closes the style that was opened last, if that is its own, and opens it otherwise.
    """
    text = ""
    opened: list[tuple[TextStyle, int]] = []
    spans = []
    for backslash, marker, other in re.findall(
        r"(\\(?=[*~|`]))?(?:(\*\*|\*|~|\|\||`)|(.))", markup, re.DOTALL
    ):
        if other or backslash:
            text += other or marker
        elif opened and opened[-1][0] is _TOGGLES[marker]:
            style, start = opened.pop()
            spans.append(Span(start, len(text), style))
        else:
            opened.append((_TOGGLES[marker], len(text)))
    return text, ranges_of(text, spans)
