r"""Styled text as signal-cli-rest-api takes it: with markers that switch styles on and off.

Its parser knows `*italic*`, `**bold**`, `~strikethrough~`, `||spoiler||` and `` `monospace` ``,
inside each other but never across, and `\` in front of a literal marker. It has no words for
some things, and there the text stays whole and a style gives way:

- a marker right behind a backslash would be taken for text, and one behind its own character for
  a longer marker, so the edge of the style moves to before them;
- three asterisks in a row have no safe reading, so italic gives way to bold where they begin or
  end at the same place, or cross;
- all styles of a message give way that has more than `MAX_STYLES`, for each takes time.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from bot.messaging.styled import Span, merged, spans_of
from conversation_store.models import StyleRange, TextStyle

MAX_STYLES: Final = 1_000
"""A message that Signal shows as text has room for some 500."""

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


def escaped_markup(text: str, styles: Sequence[StyleRange]) -> str:
    """Return what the server's parser makes this text and, as far as it can, these styles of."""
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
    """Yield each span from where, and up to where, its markers are read as such."""
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
    """Return spans that never cross, outer ones first: who crosses the end of one is divided."""
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
    """Yield the spans whose markers are read as such; which others are not, see above."""
    bold = {edge for span in spans if span.style is TextStyle.BOLD for edge in span[:2]}
    for span, on_safe_edges in zip(spans, _on_safe_edges(text, spans), strict=True):
        between_bold = span.style is TextStyle.ITALIC and not bold.isdisjoint(span[:2])
        if not between_bold and span == on_safe_edges:
            yield span


def _switches(spans: Iterable[Span]) -> Iterator[tuple[int, str]]:
    """Yield every marker with its place; what was switched on last is switched off first."""
    opened: list[Span] = []
    for span in spans:
        while opened and opened[-1].end <= span.start:
            closed = opened.pop()
            yield closed.end, _MARKERS[closed.style]
        yield span.start, _MARKERS[span.style]
        opened.append(span)
    for span in reversed(opened):
        yield span.end, _MARKERS[span.style]
