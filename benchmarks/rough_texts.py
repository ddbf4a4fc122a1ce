"""Texts without sense: fragments that some reader of texts treats in a way of its own.

A grammar, not a list of patterns: fragments make units, units are repeated, nested, interleaved and
put next to each other until a text has its size. The same number always makes the same text.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

SIZE_BYTES: Final = 64 * 1024
"""The longest text that official apps accept."""

FRAGMENTS: Final = (
    *("a", "word ", "Wörter", "x1", "漢", "か", "。", "שלום", "مرحبا"),
    *("\U0001d538", "e\u0301", "\u0301", "\u200d", "\ufe0f", "\u202e", "\u00a0", "\u2028"),
    *("👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "\ufffc", "\0", "\ud83d"),
    *(" ", "  ", "    ", "\t", "\n", "\n\n", "\r", "\x0b", " " * 40, "\n" * 9),
    *("|", "a|b", "|-|-|", "||", "---", "===", "> ", ">", "- ", "* ", "+ ", "1)", "1) ", "12. "),
    *("# ", "## ", "[ ]", "[x] ", "`", "``", "```", "```py\n", "~~~", "~~"),
    *("*", "**", "***", "_", "__", "[", "]", "(", ")", "](", "[a](b)", "![x](y)", '[t](u "v")'),
    *("<", ">", "<b>", "</b>", "<!--", "&amp;", "&", "&#", "&#128077;"),
    *("\\", "\\(", "\\)", "\\[", "\\]", "$", "$$", "$x$"),
    *("https://a.b/c", "://", "http://", "www.a.b", "me@a.b", "<https://a.b>", "C:\\x\\", ":"),
    *('"', "'", "{", "}", '{"a":', "[1,", "null", "1e9", "9" * 30, "<think>", "</think>"),
    *("<|call|>", "@someone", "!help", "yes"),
    *("+49 151 ", "123-456", "00", "(555)", "!", "?", ".", "…", ","),
)  # fmt: skip

FLOODING: Final = tuple(
    dict.fromkeys(
        character for one in FRAGMENTS for character in one.encode(errors="ignore").decode()
    )
)
"""Each character of the fragments that UTF-8 can encode."""

Units = Sequence[str]


def rough_text(number: int, size_bytes: int = SIZE_BYTES) -> str:
    """Return a text of nearly so many bytes as UTF-8, half surrogate pairs counted as one."""
    dice = random.Random(number)
    units = [_unit(dice) for _ in range(dice.randint(1, 5))]
    text = dice.choice(_WAYS)(dice, units, size_bytes)
    return text.encode(errors="surrogatepass")[:size_bytes].decode(errors="ignore")


def _unit(dice: random.Random) -> str:
    fragments = dice.choices(FRAGMENTS, k=dice.randint(1, 5))
    return "".join(fragments) + dice.choice(("", "", " ", "\n"))


def _repeated(_: random.Random, units: Units, size: int) -> str:
    return "".join(units) * (size // len("".join(units)) + 1)


def _one_after_the_other(_: random.Random, units: Units, size: int) -> str:
    share = size // len(units)
    return "".join(unit * (share // len(unit) + 1) for unit in units)


def _interleaved(dice: random.Random, units: Units, size: int) -> str:
    shortest = min(map(len, units))
    return "".join(dice.choices(units, k=size // shortest + 1))


def _nested(dice: random.Random, units: Units, size: int) -> str:
    """Lines that each begin with one more of the first unit, up to a depth, again and again."""
    lines: list[str] = []
    while size > 0:
        line = units[0] * (len(lines) % 25) + dice.choice(units) + dice.choice(("", "\n"))
        lines.append(line)
        size -= len(line)
    return "".join(lines)


def _opened_and_closed(_: random.Random, units: Units, size: int) -> str:
    """All that opens first, then all that closes."""
    half = size // 2
    opens, closes = units[0], units[-1]
    return opens * (half // len(opens) + 1) + closes * (half // len(closes) + 1)


def flood(character: str, size_bytes: int = SIZE_BYTES, start: str = "x", end: str = "y") -> str:
    """Return a text of one character again and again between two others."""
    room = size_bytes - len(f"{start}{end}".encode())
    return f"{start}{character * (room // len(character.encode()))}{end}"


def _ends(units: Units) -> tuple[str, str]:
    first, last = units[0][:20], units[-1][:20]
    return first.encode(errors="ignore").decode(), last.encode(errors="ignore").decode()


def _flooded(dice: random.Random, units: Units, size: int) -> str:
    return flood(dice.choice(FLOODING), size, *_ends(units))


def _random(dice: random.Random, _: Units, size: int) -> str:
    return "".join(dice.choices(FRAGMENTS, k=size))


_WAYS: Final[tuple[Callable[[random.Random, Units, int], str], ...]] = (
    _repeated, _one_after_the_other, _interleaved, _nested, _opened_and_closed, _flooded, _random,
)  # fmt: skip
