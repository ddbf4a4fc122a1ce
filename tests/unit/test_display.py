"""Texts shown to people: whole, in the order in which they were written."""

import json
import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.display import MAX_MARKS, shown, visible

MARK = re.compile(
    r"⟨(?:(?P<spaces>[\d,]+) spaces|rtl (?P<rtl>[^⟩]*) ltr"
    r"|(?:(?P<times>[\d,]+) times )?U\+(?P<code>\w+))⟩"
)

INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

NASTY = [
    *" \u00a0\u2003\u3000\t\u200b\u200d\u2060\ufeff\u00ad\u034f\u061c\u180e\u3164\u2800\uffa0",
    *"\u202a\u202c\u202e\u2066\u2069\u200e\u200f\u2028\u2029\r\n\v\f\x85\x1b\x7f\0",
    *"\ufe0e\ufe0f\U000e0041\U000e0100\u0301\u0336\u0338\u20e3\u0488\u05b7\u064b\u094d\u0e49",
    *"שאمر\u0661\u0662\u06f4नทเ한\u1112\u1161é👍👩❤⟨⟩〈〉\u212a\ufffc\U0001d159xU+0123456789,\\\"'-.",
    "   ",
    "⟨rtl ",
    " ltr⟩",
    "⟨12 spaces⟩",
]
nasty_texts = st.lists(st.sampled_from(NASTY) | st.characters(), max_size=30).map("".join)


def read_back(shown_text: str) -> str:
    """Return the text that was shown."""

    def original(mark: re.Match[str]) -> str:
        if mark["spaces"]:
            return " " * int(mark["spaces"].replace(",", ""))
        if mark["rtl"] is not None:
            return mark["rtl"]
        return chr(int(mark["code"], 16)) * int((mark["times"] or "1").replace(",", ""))

    return MARK.sub(original, shown_text)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(nasty_texts)
def test_a_shown_text_can_be_read_back_so_no_two_look_the_same(text: str) -> None:
    assert read_back(visible(text)) == text


@settings(derandomize=True, deadline=None, max_examples=300)
@given(nasty_texts)
def test_nothing_that_is_shown_is_invisible_or_out_of_order(text: str) -> None:
    result = visible(text)
    assert result.isprintable()
    assert "   " not in result
    for character in result:
        assert unicodedata.category(character) not in INVISIBLE
        assert not 0xFE00 <= ord(character) <= 0xFE0F
    assert not [character for character in MARK.sub("", result) if is_right_to_left(character)]
    assert max(map(len, marks_of(result)), default=0) <= MAX_MARKS


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | nasty_texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(nasty_texts, inner, max_size=5),
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(json_values)
def test_a_value_can_be_read_back_from_how_it_is_shown(value: object) -> None:
    assert json.loads(read_back(shown(value))) == value


def is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in {"R", "AL", "AN", "RLE", "RLO", "RLI"}


def marks_of(text: str) -> list[str]:
    """Return the combining marks that stand in a row."""
    return re.findall("x+", "".join("x" if unicodedata.combining(c) else "." for c in text))


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [
        ("\u202e", "⟨U+202E⟩"),  # right-to-left override
        ("\u2066", "⟨U+2066⟩"),  # an isolate
        ("\u200b", "⟨U+200B⟩"),  # zero-width space
        ("\u200b" * 1_234, "⟨1,234 times U+200B⟩"),
        ("\u00ad", "⟨U+00AD⟩"),  # soft hyphen
        ("\u3164", "⟨U+3164⟩"),  # Hangul filler: a blank letter
        ("\u2800", "⟨U+2800⟩"),  # a Braille cell without dots
        ("\U0001d159", "⟨U+1D159⟩"),  # a musical note head without ink
        ("\u00a0", "⟨U+00A0⟩"),
        ("\u2028", "⟨U+2028⟩"),
        ("\x7f", "⟨U+007F⟩"),
        ("\x85", "⟨U+0085⟩"),
        ("\ufe01", "⟨U+FE01⟩"),  # a variation selector: may carry bytes
        ("\U000e0041", "⟨U+E0041⟩"),  # a tag character: an invisible A
        ("\ud800", "⟨U+D800⟩"),
        ("\ufffc", "⟨U+FFFC⟩"),  # phones put a name there
        ("\u212a", "⟨U+212A⟩"),  # the Kelvin sign: a second K
        ("1\u0338", "1⟨U+0338⟩"),  # a stroke through a digit
        ("e\u0301", "e⟨U+0301⟩"),  # a second é
        ("ท\u0e49\u0e49\u0e49", "ท⟨3 times U+0E49⟩"),
        ("ก\u0e34\u0e35\u0e36\u0e37", "ก\u0e34\u0e35\u0e36⟨U+0E37⟩"),
        ("ש\u0e49", "⟨rtl ש ltr⟩⟨U+0E49⟩"),
        ("  ", "  "),
        ("   ", "⟨3 spaces⟩"),
        (" " * 1_000, "⟨1,000 spaces⟩"),
        ("⟨3 spaces⟩", "⟨U+27E8⟩3 spaces⟨U+27E9⟩"),
        ("❤️", "❤⟨U+FE0F⟩"),
        ("100 שלום, עולם 200", "100 ⟨rtl שלום, עולם ltr⟩ 200"),
        ("\u0661-\u0662", "⟨rtl \u0661 ltr⟩-⟨rtl \u0662 ltr⟩"),
        ("مَرحَبًا", "⟨rtl مَرحَبًا ltr⟩"),
        ("नमस्ते สวัสดี 한국어 日本 Ödön é 👍🏽", "नमस्ते สวัสดี 한국어 日本 Ödön é 👍🏽"),
    ],
)
def test_hidden_and_moving_characters_are_spelt_out(hidden: str, expected: str) -> None:
    assert visible(f"a{hidden}b") == f"a{expected}b"


def test_every_right_to_left_character_is_known_as_one() -> None:
    for code in range(0x1F000):
        character = chr(code)
        if is_right_to_left(character):
            assert visible(character).startswith("⟨"), f"U+{code:04X}"


def test_stacked_marks_take_linear_time() -> None:
    # Marks whose code points end alike make a search among them slow.
    pile = "\u0310\u0311" * 32_000 + "\u0610\u0611" * 32_000
    began = time.process_time()
    assert visible("a" + pile).startswith("a⟨U+0310⟩")
    of_the_pile = time.process_time() - began
    began = time.process_time()
    visible("a" + "\u0310\u0410" * 64_000)
    assert of_the_pile < 5 * (time.process_time() - began)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u0929", "\u0928\u093c"),  # one letter, and a letter with its sign
        ("\u05d0\u05b0\u05b1", "\u05d0\u05b1\u05b0"),  # the same points in another order
        ("\u0995\u09c7\u09be", "\u0995\u09cb"),
    ],
)
def test_two_encodings_of_one_letter_are_shown_differently(one: str, other: str) -> None:
    shown = [unicodedata.normalize("NFC", visible(text)) for text in (one, other)]
    assert shown[0] != shown[1]
