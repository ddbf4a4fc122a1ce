r"""Convert style ranges: Signal counts UTF-16 code units, Python counts characters.

`escaped_markup` writes styles for signal-cli-rest-api, as markers that switch them on and off.
The server's parser knows `*italic*`, `**bold**`, `~strikethrough~`, `||spoiler||` and
`` `monospace` ``, inside each other but never across, and `\` before a literal marker. It cannot
express everything. The text always stays whole, and a style gives way:

- the parser reads a marker right after a backslash as text, and a marker after its own character
  as a longer marker, so the edge of the style moves to before them;
- it has no safe reading for three asterisks in a row, so italic gives way to bold if both begin or
  end at the same place, or cross;
- a message with more than `MAX_STYLES` loses all of them, because each takes time.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final, NamedTuple

from conversation_store.models import StyleRange, TextStyle

MAX_STYLES: Final = 1_000
"""A message that Signal shows as text has room for some 500."""

_LAST_OF_ONE_UNIT: Final = "\uffff"
_MARKERS: Final = {
    TextStyle.BOLD: "**",
    TextStyle.ITALIC: "*",
    TextStyle.STRIKETHROUGH: "~",
    TextStyle.SPOILER: "||",
    TextStyle.MONOSPACE: "`",
}
_UNSAFE_BEFORE: Final = {
    TextStyle.BOLD: "\\*",
    TextStyle.ITALIC: "\\*",
    TextStyle.STRIKETHROUGH: "\\",
    TextStyle.SPOILER: "\\|",
    TextStyle.MONOSPACE: "\\",
}
_ESCAPES: Final = str.maketrans({marker: f"\\{marker}" for marker in "*~|`"})


class Span(NamedTuple):
    """A styled range by Python's own indexes."""

    start: int
    end: int
    style: TextStyle


def well_formed(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoding can carry."""
    return text.encode(errors="replace").decode()


def ranges_of(text: str, spans: Iterable[Span]) -> tuple[StyleRange, ...]:
    """Return spans as ranges, in the order of their starts; ranges of one style never touch."""
    units = _units_before(text)
    return tuple(
        StyleRange(units[start], units[end] - units[start], style)
        for start, end, style in merged(spans)
    )


def spans_of(text: str, styles: Iterable[StyleRange]) -> list[Span]:
    """Return ranges as spans, cut to fit the text and its characters."""
    units = _units_before(text)
    found = []
    for style_range in styles:
        start = bisect_left(units, style_range.start)
        end = bisect_left(units, style_range.start + style_range.length + 1) - 1
        found.append(Span(start, end, style_range.style))
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in the order of their starts, longer ones first; touching ones become one."""
    latest: dict[TextStyle, Span] = {}
    done = []
    for span in sorted(spans):
        before = latest.get(span.style)
        if span.start >= span.end:
            continue
        if before is None or before.end < span.start:
            if before is not None:
                done.append(before)
            latest[span.style] = span
        elif before.end < span.end:
            latest[span.style] = before._replace(end=span.end)
    done.extend(latest.values())
    return sorted(done, key=lambda span: (span.start, -span.end, span.style))


def _units_before(text: str) -> Sequence[int]:
    """Return for every index of a text the number of UTF-16 code units before it."""
    if not text or max(text) <= _LAST_OF_ONE_UNIT:
        return range(len(text) + 1)
    sizes = (2 if character > _LAST_OF_ONE_UNIT else 1 for character in text)
    return list(accumulate(sizes, initial=0))


def escaped_markup(text: str, styles: Sequence[StyleRange]) -> str:
    """Return the text with markers, from which the server's parser gets text and styles back."""
    if len(styles) > MAX_STYLES:
        return _escaped(text)
    moved = merged(_on_safe_edges(text, spans_of(text, styles)))
    spans = _nested(merged(_expressible(text, _nested(moved))))
    pieces: list[str] = []
    written = 0
    for place, marker in _switches(spans):
        pieces += (_escaped(text[written:place]), marker)
        written = place
    return "".join([*pieces, _escaped(text[written:])])


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _on_safe_edges(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield each span with its edges moved to places at which its markers are read as such."""
    safe: dict[tuple[int, TextStyle], int] = {}
    for edge, style in sorted({(edge, one.style) for one in spans for edge in one[:2]}):
        place = edge
        # An earlier edge knows the rest of the way, so no character is looked at twice.
        while place and (place, style) not in safe and text[place - 1] in _UNSAFE_BEFORE[style]:
            place -= 1
        safe[edge, style] = safe.get((place, style), place)
    for start, end, style in spans:
        yield Span(safe[start, style], safe[end, style], style)


def _nested(spans: Iterable[Span]) -> list[Span]:
    """Divide spans so that they never cross; return outer ones first."""
    waiting = [(start, -end, style) for start, end, style in spans]
    heapify(waiting)
    nested: list[Span] = []
    ends: list[int] = []
    while waiting:
        start, negative_end, style = heappop(waiting)
        end = -negative_end
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and ends[-1] < end:
            heappush(waiting, (ends[-1], -end, style))
            end = ends[-1]
        nested.append(Span(start, end, style))
        ends.append(end)
    return nested


def _expressible(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans whose markers are read as such; the module names the others."""
    bold = {edge for span in spans if span.style is TextStyle.BOLD for edge in span[:2]}
    for span, on_safe_edges in zip(spans, _on_safe_edges(text, spans), strict=True):
        between_bold = span.style is TextStyle.ITALIC and not bold.isdisjoint(span[:2])
        if not between_bold and span == on_safe_edges:
            yield span


def _switches(spans: Iterable[Span]) -> Iterator[tuple[int, str]]:
    """Yield every marker with its place; the last style to begin is the first to end."""
    opened: list[Span] = []
    for span in spans:
        while opened and opened[-1].end <= span.start:
            closed = opened.pop()
            yield closed.end, _MARKERS[closed.style]
        yield span.start, _MARKERS[span.style]
        opened.append(span)
    for span in reversed(opened):
        yield span.end, _MARKERS[span.style]
