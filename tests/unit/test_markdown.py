import re
import time
from typing import Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bot.signal import formatting
from bot.signal.formatting import (
    GRID_COLUMNS,
    MAX_BRACKETS,
    MAX_CHARACTERS,
    MAX_MARKERS,
    Span,
    ranges_of,
    render,
)
from conversation_store.models import StyledText, StyleRange, TextStyle

FUZZ: Final = settings(max_examples=200, derandomize=True, database=None, deadline=None)
BOLD, ITALIC, STRIKETHROUGH, MONOSPACE, SPOILER = TextStyle
TAGS: Final = {"b": BOLD, "i": ITALIC, "s": STRIKETHROUGH, "m": MONOSPACE, "p": SPOILER}
HOSTILE_SECONDS: Final = 2.0
FAMILY: Final = "👩‍👩‍👧‍👦"


def looks(tagged: str) -> StyledText:
    """Return the styled text that `<b>tags</b>` describe."""
    text = ""
    opened: list[int] = []
    spans = []
    for closing, name, other in re.findall(r"<(/?)([bimps])>|([^<]+|<)", tagged):
        text += other
        if closing:
            spans.append(Span(opened.pop(), len(text), TAGS[name]))
        elif name:
            opened.append(len(text))
    return StyledText(text, ranges_of(text, spans))


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("**bold** __too__", "<b>bold</b> <b>too</b>"),
        ("*italic* _too_", "<i>italic</i> <i>too</i>"),
        ("__init__.py and __main__", "__init__.py and __main__"),
        ("a/__pycache__/b, x.__dict__ or __add__(1)", "a/__pycache__/b, x.__dict__ or __add__(1)"),
        (
            "__note__: **`__x__`** __Two words__",
            "<b>note</b>: <b><m>__x__</m></b> <b>Two words</b>",
        ),
        ("***both***", "<b><i>both</i></b>"),
        ("~~gone~~ ||secret||", "<s>gone</s> <p>secret</p>"),
        ("`code` and `` a`b ``", "<m>code</m> and <m>a`b</m>"),
        ("**bold with `code` in it**", "<b>bold with <m>code</m> in it</b>"),
        ("||a **b** c||", "<p>a <b>b</b> c</p>"),
        ("**R**ead **E**val", "<b>R</b>ead <b>E</b>val"),
        ("👍🏽 **é** 🎈", "👍🏽 <b>é</b> 🎈"),
        ("שלום **עולם** ב**שלום**", "שלום <b>עולם</b> ב<b>שלום</b>"),
        ("这是**「重点」**内容", "这是<b>「重点」</b>内容"),
        ("중요**합니다**요", "중요<b>합니다</b>요"),
        ("**a**`b`**c**", "<b>a</b><m>b</m><b>c</b>"),
        ("** not bold ** and **a", "** not bold ** and **a"),
        ("_see https://a.b/c_ now", "<i>see https://a.b/c</i> now"),
        ("[~~old~~ and ||so||](https://a.b)", "<s>old</s> and <p>so</p> (https://a.b)"),
        ("`  x` is indented", "<m>  x</m> is indented"),
        ("$$$$ _no_ $$x_1$$", "$$$$ _no_ $$x_1$$"),
        ("so $x_1$ and $a*b*c$ and $$x_{i}*y*$$", "so x₁ and a*b*c and xᵢ*y*"),
        (r"\(a_1 * b * c\) and \[ x \{ y \]", "a₁ * b * c and x { y"),
        ("\\[\nE = mc^2\n\\]", "E = mc²"),
        ("<s>old</s> <del>x</del> cm<sup>2</sup>, CO<sub>2</sub>", "<s>old</s> <s>x</s> cm², CO₂"),
        ("<b>bold</b><br/><code>a*b</code> <I>one</I>", "<b>bold</b>\n<m>a*b</m> <i>one</i>"),
        ("| a | e\u0301\u0301 |\n|---|---|\n| b | xx |", "<m>a  e\u0301\u0301\n-  --\nb  xx</m>"),
        ("**$5**, **7$**, $x and `y$`", "<b>$5</b>, <b>7$</b>, $x and <m>y$</m>"),
        (r"\*not italic\* \_ \# \`", "*not italic* _ # `"),
        (r"snake\_case\_name", "snake_case_name"),
        ("&lt;a&gt; &amp; &eacute; &#128077;", "<a> & é 👍"),
        ("`&amp; \\*`", "<m>&amp; \\*</m>"),
        ("[text](https://a.b/c)", "text (https://a.b/c)"),
        ("[**text**](https://a.b/ü_x_)", "<b>text</b> (https://a.b/ü_x_)"),
        ("[https://a.b](https://a.b/)", "https://a.b"),
        ("<https://a.b> and https://a.b/_c_", "https://a.b and https://a.b/_c_"),
        ("<me@a.b>", "me@a.b"),
        ("**https://a.b**", "<b>https://a.b</b>"),
        ("(see https://a.b_)", "(see https://a.b_)"),
        ("[](https://a.b)", "https://a.b"),
        ("[text]()", "text"),
        ('[text](https://a.b "A title")', "text (A title: https://a.b)"),
        ("![a cat](https://a.b/c.png)", "a cat (https://a.b/c.png)"),
        ("![](https://a.b/c.png)", "https://a.b/c.png"),
        (r"![a \* &amp; **b**](c)", "a * & <b>b</b> (c)"),
        ("[![alt](i.png)](https://a.b)", "alt (i.png) (https://a.b)"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("a\nb  \nc\\\nd", "a\nb\nc\nd"),
        ("a\n\n\n\n \nb", "a\n\nb"),
        (
            "# One *two*\n\ntext\n### Three\nmore",
            "<b>One <i>two</i></b>\n\ntext\n<b>Three</b>\nmore",
        ),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("a\n---\nb", "a\n———\nb"),
        ("> a\n> **b**\n>\n> c\n\nd", "> a\n> <b>b</b>\n>\n> c\n\nd"),
        ("> a\n> > b", "> a\n> > b"),
        ("> a\nb", "> a\nb"),
        ("> - a\nb\n- > c\n  d", "> • a\nb\n• > c\n  d"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("- a\n* b\n+ c", "• a\n• b\n• c"),
        ("Why:\n- a\n- b", "Why:\n• a\n• b"),
        ("3. c\n4. d\n9. e", "3. c\n4. d\n9. e"),
        ("1) a\n2) b", "1) a\n2) b"),
        ("1. a\n1. b\n   1. c\n1. d", "1. a\n2. b\n  1. c\n3. d"),
        ("- a\n  - b\n    1. c\n\n    more\n- d", "• a\n  • b\n    1. c\n\n    more\n• d"),
        ("- a\n\n  b\n\n- c", "• a\n\n  b\n\n• c"),
        ("- [ ] open\n- [x] **done**\n1. [X] both", "☐ open\n☑ <b>done</b>\n1. ☑ both"),
        ("- [a](b)\n- [ ]", "• a (b)\n• [ ]"),
        ("1. a\n   ```sh\n   ls\n   cd\n   ```\n2. b", "1. a\n  <m>ls\n  cd</m>\n2. b"),
        ("- > a\n  > b", "• > a\n  > b"),
        ("-\n- a", "• \n• a"),
        ("```python\nif x:\n\n    y\n```", "<m>if x:\n\n    y</m>"),
        ("~~~\n**a** _b_ &amp; ||\n~~~\nafter", "<m>**a** _b_ &amp; ||</m>\nafter"),
        ("text\n```\nunclosed", "text\n<m>unclosed</m>"),
        ("    indented\n    code", "<m>indented\ncode</m>"),
        ("```what this is about\nx\n```", "what this is about\n<m>x</m>"),
        ("``` alone", "``` alone"),
        ("> ```\n> a\n> b\n> ```", "> <m>a\n> b</m>"),
    ],
)
def test_markdown_becomes_styled_text(markdown: str, shown: str) -> None:
    assert render(markdown) == looks(shown)


@pytest.mark.parametrize(
    "text",
    [
        "2*3=6 and a*b",
        "x**2 + y**2 = z**2",
        "5*3*2",
        "snake_case_name and _private",
        "a ~ b, ~5, ~~~ and ~~~~",
        r"C:\path\*",
        r"C:\Users\_x_\*.txt D:\a\**\b",
        "||",
        "a || b || c, and a||b||c",
        r"\(\begin{pmatrix}a_1 & b\end{pmatrix}\)",
        "$5 and $10, $HOME_DIR/bin$, $US$",
        "https://example.com/_next/_a_/~~b~~?c=*",
        "<b>bold <!-- x --> <div>\n</div> <b class=x>a</b>",
        "[text][1] and [1]\n\n[1]: https://example.com",
        "[x] and [ ] and a[0][1]",
        "AT&T and &nosuch; <- -> <3",
        "#hashtag and C# and 1.5 and 2024. and - and +",
        "Title\n=====",
        "/* comment */ **kwargs",
        "a\\b \\n \\d+",
    ],
)
def test_text_without_markup_stays_as_typed(text: str) -> None:
    assert render(text) == StyledText(text)


def test_a_narrow_table_is_a_grid() -> None:
    table = "| Name | Age |\n|:--|--:|\n| Ada | 36 |\n| **Li** 语 | 7 |\n\nafter"
    assert render(table).text == (
        "Name   Age\n"
        "-----  ---\n"
        "Ada     36\n"
        "Li 语    7\n"
        "\n"
        "after"
    )  # fmt: skip
    assert render(table).styles[0] == StyleRange(0, 42, MONOSPACE)


def test_wide_table_has_one_line_per_cell() -> None:
    text = "long " * 9 + "text"
    table = f"| Name | What *it* is | Price |\n|-|-|-|\n| Ada | {text} | 1 |\n| Li | | 2 |"
    assert render(table) == looks(
        f"<b>Name</b>: Ada\n<b>What <i>it</i> is</b>: {text}\n<b>Price</b>: 1\n"
        "\n"
        "<b>Name</b>: Li\n<b>Price</b>: 2"
    )


def test_no_cell_of_a_table_is_lost() -> None:
    table = "| a | b |\n|---|---|\n| x | `c || d` |\n| 1 | 2 | 3 |\n| 4 |\n| \\| | `\\|` |"
    assert render(table).text.split("\n")[2:] == ["x  c || d", "1  2 | 3", "4", "|  |"]


def test_a_table_in_a_list_stays_in_it() -> None:
    table = "- a\n\n  | b | c |\n  |---|---|\n  | 1 | 2 | 3 |"
    assert render(table).text == "• a\n\n  b  c\n  -  -----\n  1  2 | 3"


def test_long_column_name_is_not_repeated() -> None:
    name = "n" * (GRID_COLUMNS + 1)
    assert render(f"|{name}|b|\n|-|-|\n|1|2|\n|3|4|").text == f"{name}\nb\n\n1\n2\n\n3\n4"


def test_halves_of_a_surrogate_pair_are_replaced() -> None:
    assert render("**\ud83d** x") == looks("<b>?</b> x")


@pytest.mark.parametrize(
    "unit",
    [">", "[", "*", "_", "`", "~~", "||", "![", "](", "<", "&#", "- ", "> - ", "1. ", "*a_", "$a"],
)
@pytest.mark.parametrize("length", [60_000, MAX_BRACKETS])
def test_dense_markup_is_rendered_quickly(unit: str, length: int) -> None:
    text = (unit * length)[:length]
    begin = time.perf_counter()
    styled = render(text)
    assert time.perf_counter() - begin < HOSTILE_SECONDS
    if length > MAX_MARKERS:
        assert styled == StyledText(text)


def test_a_table_with_very_many_cells_is_shown_as_it_was_typed() -> None:
    table = "|a" * 200 + "\n" + "|-" * 200 + "\n|a" * 400
    assert render(table) == StyledText(table)


@pytest.mark.parametrize("text", ["> " * 30 + "deep", "- " * 15 + "deep", "- > " * 12 + "deep"])
def test_too_deep_nesting_is_shown_as_typed(text: str) -> None:
    assert render(text) == StyledText(text)


def test_too_long_text_is_shown_as_typed() -> None:
    text = "**word** " * (MAX_CHARACTERS // 9 + 1)
    assert render(text) == StyledText(text)


MARKUP: Final = (
    "*", "**", "_", "__", "~~", "||", "|", "`", "``", "[", "](", ")", "(", "!", "<", ">", "#", "# ",
    "\n", "\n\n", "- ", "> ", "1. ", "  ", "    ", "|-|", "\n|-|-|\n", "\\", "$", ":", "://", "---",
)  # fmt: skip
CHARACTERS: Final = (
    "a", "b ", "7", "é", "e\u0301", "語", "「", "」", "。", "ש", "ش", "👍🏽", "🎈", FAMILY,
    "❤\ufe0f", "\u200d", "\u202e", "\ud83d", "\x00", "\xa0", " ", "http", "C:\\",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(MARKUP + CHARACTERS) | st.text(max_size=3), max_size=40).map(
    "".join
)


@FUZZ
@given(TEXTS)
def test_every_style_is_on_whole_characters_of_the_text(text: str) -> None:
    styled = render(text)
    units = styled.text.encode("utf-16-le")
    ends = dict.fromkeys(TextStyle, -1)
    for style_range in styled.styles:
        start, end = style_range.start, style_range.start + style_range.length
        assert ends[style_range.style] < start < end <= len(units) // 2
        assert units[2 * start : 2 * end].decode("utf-16-le").strip("\n")
        ends[style_range.style] = end
    assert list(styled.styles) == sorted(styled.styles, key=lambda style_range: style_range.start)


@FUZZ
@given(st.lists(st.sampled_from(MARKUP + CHARACTERS), max_size=40).map("".join))
def test_no_letter_and_no_digit_is_lost(text: str) -> None:
    assume("&" not in text)
    shown = iter(render(text).text)
    assert all(character in shown for character in text if character.isalnum())


WORDS = st.lists(
    st.sampled_from(
        ("a", "it's", "3.14", "é", "語", "שלום", "شكرا", FAMILY, "e\u0301", "한국", "🎈.")
    )
    | st.text(st.characters(categories=("L", "M", "Nd", "So")), min_size=1),
    min_size=1,
)


@FUZZ
@given(WORDS, st.sampled_from((" ", "\n", "\n\n", "\n\n\n", "  ")))
def test_words_are_shown_as_they_are_typed(words: list[str], space: str) -> None:
    text = space.join(words)
    assert render(text).styles == ()
    assert render(text).text.split() == text.split()


@given(text=st.text(alphabet="ab1 .)-+=:/?,'\"\U0001f600\u00e9\u0301(;@", min_size=1, max_size=12))
def test_shortcut_for_plain_lines_agrees_with_the_parser(text: str) -> None:
    assume(formatting._WITHOUT_MARKUP.fullmatch(text))
    assert render(text) == StyledText(text)
    assert render(f"{text}\n\n`x`").text == f"{text}\n\nx"
