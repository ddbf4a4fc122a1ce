import time
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.signal.formatting import (
    Span,
    merged,
    ranges_of,
    render,
    spans_of,
)
from bot.signal.rest_requests import MAX_STYLES, escaped_markup
from conversation_store.models import StyleRange, TextStyle
from tests.fakes.rest_markup import served

FUZZ: Final = settings(max_examples=200, derandomize=True, database=None, deadline=None)
BOLD, ITALIC, STRIKETHROUGH, MONOSPACE, SPOILER = TextStyle
MAX_SECONDS: Final = 1.0
UNITS: Final = (
    "\\",
    "*",
    "|",
    "~",
    "`",
    "a",
    "b",
    " ",
    "\n",
    "é",
    "e\u0301",
    "👍🏽",
    "🎈",
    "ش",
    "\u200d",
)


@pytest.mark.parametrize(
    ("markdown", "markup"),
    [
        ("plain words", "plain words"),
        ("**bold** and *italic*", "**bold** and *italic*"),
        ("~~gone~~ ||secret|| `code`", "~gone~ ||secret|| `code`"),
        ("2*3=6 and a*b | c~d", r"2\*3=6 and a\*b \| c\~d"),
        ("**a *b* c**", "**a *b* c**"),
        ("**`x` is *it* now**", "**`x` is *it* now**"),
        ("# Read *this*", "**Read this**"),
        (r"`C:\dir\` is it", r"C:\dir\ is it"),
        ("`SELECT *`", r"`SELECT \*`"),
        ("```\na || b\n```", "`a \\|\\| b`"),
    ],
)
def test_styles_become_markers_and_everything_else_is_escaped(markdown: str, markup: str) -> None:
    styled = render(markdown)
    assert escaped_markup(styled.text, styled.styles) == markup


def test_styles_outside_the_text_and_empty_ones_leave_no_markers() -> None:
    styles = [StyleRange(3, 9, BOLD), StyleRange(1, 0, ITALIC), StyleRange(7, 2, SPOILER)]
    assert escaped_markup("abc", styles) == "abc"


def test_style_that_crosses_another_is_left_out() -> None:
    styles = [StyleRange(0, 4, STRIKETHROUGH), StyleRange(2, 4, MONOSPACE)]
    assert escaped_markup("abcdef", styles) == "~abcd~ef"


TEXTS = st.lists(st.sampled_from(UNITS), max_size=12).map("".join)
SIMPLE_TEXTS = st.text("ab ~`é🎈", min_size=4, max_size=12)
STYLES = st.lists(
    st.builds(StyleRange, st.integers(0, 12), st.integers(0, 12), st.sampled_from(TextStyle)),
    max_size=6,
)


@FUZZ
@given(TEXTS, STYLES)
def test_any_text_arrives_as_it_is_and_no_style_spreads(
    text: str, styles: Sequence[StyleRange]
) -> None:
    arrived, kept = served(escaped_markup(text, styles))
    assert arrived == text
    assert covered(kept, text) <= covered(styles, text)


@FUZZ
@given(SIMPLE_TEXTS, STYLES)
def test_styles_arrive_as_they_are_where_the_text_has_nothing_special(
    text: str, styles: Sequence[StyleRange]
) -> None:
    without_italic = tuple(style for style in styles if style.style is not ITALIC)
    assume(not any_cross(spans_of(text, without_italic)))
    assert served(escaped_markup(text, without_italic)) == (
        text,
        ranges_of(text, spans_of(text, without_italic)),
    )


def any_cross(spans: Sequence[Span]) -> bool:
    return any(one.start < other.start < one.end < other.end for one in spans for other in spans)


def covered(styles: Sequence[StyleRange], text: str) -> set[tuple[int, TextStyle]]:
    return {
        (place, style)
        for start, end, style in spans_of(text, styles)
        for place in range(start, end)
    }


def test_merging_leaves_no_two_ranges_of_a_style_that_touch() -> None:
    spans = merged([Span(0, 2, BOLD), Span(2, 3, BOLD), Span(1, 2, ITALIC), Span(5, 5, BOLD)])
    assert spans == [Span(0, 3, BOLD), Span(1, 2, ITALIC)]


def test_message_with_too_many_styles_is_sent_without_them() -> None:
    text = "a~" * (MAX_STYLES + 1)
    styles = [StyleRange(2 * place, 1, BOLD) for place in range(MAX_STYLES)]
    escaped = text.replace("~", "\\~")
    assert escaped_markup(text, styles) == escaped.replace("a", "**a**", MAX_STYLES)
    assert escaped_markup(text, [*styles, StyleRange(0, 2, ITALIC)]) == escaped


def test_styles_inside_a_long_run_of_markers_take_no_long_time() -> None:
    text = "*" * 60_000
    styles = [StyleRange(60 * place + 59, 1, ITALIC) for place in range(MAX_STYLES)]
    began = time.thread_time()
    assert escaped_markup(text, styles) == "\\*" * 60_000
    assert time.thread_time() - began < MAX_SECONDS
