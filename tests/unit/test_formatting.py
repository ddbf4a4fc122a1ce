from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.signal.formatting import (
    CUT_NOTICE,
    MAX_ANSWER_BYTES,
    MAX_PART_BYTES,
    render,
    spans_of,
    split,
    split_styled,
)
from conversation_store.models import StyledText, StyleRange, TextStyle

FUZZ: Final = settings(max_examples=300, derandomize=True, database=None, deadline=None)
FAMILY: Final = "👩‍👩‍👧‍👦"
FLAG: Final = "🇩🇪"
UNITS: Final = (
    "a", "é", "e\u0301", "語", "の", "א", "ش", "🎈", "👍🏽", FAMILY, FLAG, "❤\ufe0f",
    "한", "\u1112\u1161\u11ab", "नि", "क्ष", "x.", "word", "。", "\uff01", "…", "```", "`",
)  # fmt: skip
SPACES: Final = (" ", "  ", "\n", "\n\n", "\r\n\r\n", "\t", ". ", "? ", "!\n", "\n  ")


def size(text: str) -> int:
    return len(text.encode())


def words(text: str) -> list[str]:
    return text.split()


def assert_only_space_is_lost(text: str, parts: tuple[str, ...]) -> None:
    place = 0
    for part in parts:
        found = text.index(part, place)
        assert not text[place:found].strip()
        place = found + len(part)
    assert not text[place:].strip()


@pytest.mark.parametrize("text", ["", " ", "\n\n \t"])
def test_nothing_is_sent_for_an_empty_answer(text: str) -> None:
    assert split(text) == ()


def test_text_at_the_limit_is_one_message() -> None:
    text = "word " * 399 + "words"
    assert size(text) == MAX_PART_BYTES
    assert split(text) == (text,)
    assert len(split(text + "s")) == 2


def test_paragraphs_come_before_lines_sentences_and_words() -> None:
    opening, middle = "One. Two.\nThree.", "word " * 300
    assert split(f"{opening}\n\n{middle}{middle}")[0] == opening


@pytest.mark.parametrize("stop", [". ", "! ", "? ", "… ", '." ', ".) ", "。", "\uff1f」", "\uff01"])
def test_sentences_come_before_words(stop: str) -> None:
    sentence = "this is one of very many sentences" + stop
    parts = split(sentence * 100)
    assert len(parts) > 1
    assert all(part.endswith(stop.strip()) for part in parts)


def test_number_with_a_dot_does_not_end_a_sentence() -> None:
    assert not any(part.endswith("3.") for part in split("it is 3.14159 or so " * 200))


@pytest.mark.parametrize("fence", ["```", "````", "  ```"])
def test_a_code_block_is_never_split(fence: str) -> None:
    code = f"{fence}python\n" + "print('hello')\n\n" * 80 + fence
    text = "Some words. " * 120 + f"\n{code}\n" + "More words. " * 120
    assert any(code.strip() in part for part in split(text))


@pytest.mark.parametrize(
    "code",
    [
        "````\n" + "```\ncode\n```\n\n" * 150 + "````",
        "```\n" + "x = 1\n\n" * 500 + "x = 2",
        "```\n" + "x = 1\n\n" * 1000 + "```",
    ],
    ids=["fence in a longer fence", "not closed", "longer than a message"],
)
def test_a_long_code_block_stays_whole(code: str) -> None:
    assert split(f"Look.\n\n{code}") == ("Look.", code)


def test_an_endless_word_stays_whole() -> None:
    word = "x" * 5_000
    assert split(f"before {word} after") == ("before", word, "after")


def test_text_without_spaces_breaks_between_ideographs() -> None:
    text = "語" * 2_000
    parts = split(text)
    assert "".join(parts) == text
    assert all(size(part) <= MAX_PART_BYTES for part in parts)


def test_a_mark_stays_with_its_letter_even_after_a_space() -> None:
    text = "a \u0301" * 2_000
    assert split(text) == (text,)


def test_halves_of_a_surrogate_pair_are_replaced() -> None:
    assert split("broken \ud83d text") == ("broken ? text",)


@pytest.mark.parametrize("unit", ["word ", "x", "語", f"{FLAG} ", f"{FAMILY} "])
def test_an_enormous_answer_is_cut_and_says_so(unit: str) -> None:
    parts = split(unit * 100_000)
    assert parts[-1].endswith(CUT_NOTICE)
    text = "".join("".join(parts).removesuffix(CUT_NOTICE).split())
    assert MAX_ANSWER_BYTES - 300 < sum(map(size, parts)) <= MAX_ANSWER_BYTES
    assert text == unit.strip() * (len(text) // len(unit.strip()))


def test_answer_with_very_long_leading_blanks_is_cut_with_notice() -> None:
    blanks = StyledText(" " * MAX_ANSWER_BYTES + "word")
    assert split_styled(blanks) == (StyledText(CUT_NOTICE),)


TEXTS = st.lists(st.sampled_from(UNITS + SPACES) | st.text(max_size=4), max_size=60).flatmap(
    lambda units: st.integers(1, 60).map(lambda times: "".join(units) * times)
)


@FUZZ
@given(TEXTS)
def test_splitting_loses_only_white_space(text: str) -> None:
    parts = split(text)
    assert all(part.strip() for part in parts)
    if size(text) <= MAX_ANSWER_BYTES:
        assert_only_space_is_lost(text, parts)


@FUZZ
@given(TEXTS.filter(lambda text: "```" not in text))
def test_only_unsplittable_parts_exceed_the_limit(text: str) -> None:
    for part in split(text):
        assert size(part) <= MAX_PART_BYTES or not has_splittable_space(part)


def has_splittable_space(part: str) -> bool:
    plain = part.replace("\u0301", "").replace("\ufe0f", "")
    return plain.isascii() and bool(part.split()[1:])


PLAIN_WORDS = st.lists(st.sampled_from(("a", "é", "3.14", "don't", FAMILY * 3, FLAG * 2, "שלום")))


@pytest.mark.full
@FUZZ
@given(PLAIN_WORDS, st.integers(1, 200), st.sampled_from(SPACES))
def test_words_and_emoji_are_never_split(units: list[str], times: int, space: str) -> None:
    text = space.join(units * times)[:15_000]
    assert words("\n".join(split(text))) == words(text)


@FUZZ
@given(
    st.lists(
        st.sampled_from(("text. ", "\n\n", "\n", "```\ncode\n\ncode\n```\n", "    ```\na\n```\n"))
    )
)
def test_every_fence_of_a_part_is_closed_in_it(units: list[str]) -> None:
    text = "\n".join(unit * 9 for unit in units)
    if size(text) <= MAX_ANSWER_BYTES:
        assert all(part.count("```") % 2 == 0 for part in split(text))


def styled_characters(parts: Sequence[StyledText]) -> list[tuple[str, frozenset[TextStyle]]]:
    """Return every character that is not white space, with its styles."""
    characters = []
    for part in parts:
        styles: list[set[TextStyle]] = [set() for _ in part.text]
        for start, end, style in spans_of(part.text, part.styles):
            for place in range(start, end):
                styles[place].add(style)
        characters += [
            (character, frozenset(styles[place]))
            for place, character in enumerate(part.text)
            if not character.isspace()
        ]
    return characters


@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_heading_stays_with_the_text_below(gap: str) -> None:
    text = f"{'word ' * 370}end.\n\n## The heading{gap}{'more ' * 50}"
    assert split_styled(render(text))[1].text.startswith("The heading\n")


def test_blanks_around_a_styled_answer_move_its_styles() -> None:
    styled = StyledText("\n 🎈 bold \n", (StyleRange(5, 6, TextStyle.BOLD),))
    assert split_styled(styled) == (StyledText("🎈 bold", (StyleRange(3, 4, TextStyle.BOLD),)),)


def test_a_style_that_goes_on_in_the_next_message_is_cut_between_them() -> None:
    words = "🎈 word " * 500
    parts = split_styled(render(f"**{words.strip()}**"))
    assert len(parts) > 1
    for part in parts:
        whole = StyleRange(0, len(part.text.encode("utf-16-le")) // 2, TextStyle.BOLD)
        assert part.styles == (whole,)


@pytest.mark.parametrize("lines", [60, 1000])
def test_a_styled_code_block_stays_whole(lines: int) -> None:
    code = "\n\n".join(["print('hello')"] * lines)
    parts = split_styled(render(f"{'Some words. ' * 120}\n\n```py\n{code}\n```\n\nMore words."))
    assert any(
        part.text[start:end] == code
        for part in parts
        for start, end, _ in spans_of(part.text, part.styles)
    )


def test_an_enormous_styled_answer_is_cut_and_the_notice_has_no_style() -> None:
    text = "word " * 20_000
    parts = split_styled(StyledText(text, (StyleRange(0, len(text), TextStyle.BOLD),)))
    last = parts[-1]
    assert last.text.endswith(CUT_NOTICE)
    assert sum(size(part.text) for part in parts) <= MAX_ANSWER_BYTES
    assert all(style.start + style.length <= last.text.index("\n\n") for style in last.styles)


STYLES = st.lists(
    st.builds(StyleRange, st.integers(0, 900), st.integers(0, 900), st.sampled_from(TextStyle)),
    max_size=8,
).map(tuple)


@pytest.mark.full
@FUZZ
@given(TEXTS, STYLES)
def test_every_word_keeps_its_styles_when_an_answer_is_split(
    text: str, styles: tuple[StyleRange, ...]
) -> None:
    whole = StyledText(text.encode(errors="replace").decode(), styles)
    parts = split_styled(StyledText(text, styles))
    if size(whole.text) <= MAX_ANSWER_BYTES:
        assert_only_space_is_lost(whole.text, tuple(part.text for part in parts))
        assert styled_characters(parts) == styled_characters([whole])
