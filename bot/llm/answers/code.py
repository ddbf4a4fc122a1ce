"""Where code stands in Markdown: what is said there about a model's markup is meant to be read.

Fenced blocks and code spans: https://spec.commonmark.org/0.31.2/#fenced-code-blocks
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

_FENCE: Final = re.compile(
    r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*+(?P<fence>`{3,}+|~{3,}+)(?P<info>[^`\n]*+)$"
)
"""Perhaps in a list or a quotation."""

_TICKS: Final = re.compile("`+")


Places = list[tuple[int, int]]


class Code:
    """The places of a text that are code: fenced blocks, and spans within a line.

    A block without an end is none: whatever is hidden there would be shown.
    """

    def __init__(self, text: str) -> None:
        blocks: Places = []
        spans: Places = []
        if "`" in text or "~~~" in text:
            blocks, spans = _read(text)
        places = sorted([*blocks, *spans])
        self._starts = [start for start, _ in places]
        self._ends = [end for _, end in places]
        self._is_block = frozenset(blocks)

    def around(self, position: int) -> tuple[int, int] | None:
        """Return where the code around a position begins and ends; None outside of code."""
        before = bisect_right(self._starts, position) - 1
        if before < 0 or position >= self._ends[before]:
            return None
        return self._starts[before], self._ends[before]

    def is_block(self, place: tuple[int, int] | None) -> bool:
        """Whether a place is a fenced block."""
        return place in self._is_block


def ends_in_code(text: str) -> bool:
    """Whether a text breaks off inside a fenced block."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if fence and found and found["fence"].startswith(fence) and not found["info"].strip():
            fence = ""
        elif found and not fence:
            fence = found["fence"]
    return bool(fence)


def _read(text: str) -> tuple[Places, Places]:
    """Return where the blocks of a text are, and the spans outside of them."""
    blocks: Places = []
    spans: Places = []
    fence, fenced_at, spans_before = "", 0, 0
    start = 0
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line.rstrip("\r\n"))
        if fence and found and found["fence"].startswith(fence) and not found["info"].strip():
            blocks.append((fenced_at, start + len(line)))
            del spans[spans_before:]
            fence = ""
        elif found and not fence:
            fence, fenced_at, spans_before = found["fence"], start, len(spans)
        else:
            spans += [(start + begin, start + end) for begin, end in _spans(line)]
        start += len(line)
    return blocks, spans


def _spans(line: str) -> Iterator[tuple[int, int]]:
    """Yield the places between backticks: so many before it as behind it."""
    if "`" not in line:
        return
    ticks = list(_TICKS.finditer(line))
    closes: dict[int, int] = {}  # by the number of backticks, the next place of so many
    closed_by: list[int | None] = []
    for place, found in reversed(list(enumerate(ticks))):
        closed_by.append(closes.get(len(found[0])))
        closes[len(found[0])] = place
    closed_by.reverse()
    place = 0
    while place < len(ticks):
        end = closed_by[place]
        if end is None:
            place += 1
            continue
        yield ticks[place].start(), ticks[end].end()
        place = end + 1
