"""Text as Signal shows it: plain words, and ranges of them that look different."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from conversation_store.models import StyleRange, TextStyle

_LAST_OF_ONE_UNIT: Final = "\uffff"


class Span(NamedTuple):
    """A range by Python's own indexes of a text, which Signal's are computed from at the end."""

    start: int
    end: int
    style: TextStyle


def well_formed(text: str) -> str:
    """Return the text with halves of surrogate pairs replaced, which no encoding can carry."""
    return text.encode(errors="replace").decode()


def ranges_of(text: str, spans: Iterable[Span]) -> tuple[StyleRange, ...]:
    """Return spans as ranges in the order of their starts; those of a style never touch."""
    units = _units_before(text)
    return tuple(
        StyleRange(units[start], units[end] - units[start], style)
        for start, end, style in merged(spans)
    )


def spans_of(text: str, styles: Iterable[StyleRange]) -> list[Span]:
    """Return ranges as spans; what reaches out of the text or into a character is cut to fit."""
    units = _units_before(text)
    found = []
    for style_range in styles:
        start = bisect_left(units, style_range.start)
        end = bisect_left(units, style_range.start + style_range.length + 1) - 1
        found.append(Span(start, end, style_range.style))
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in the order of their starts, longer ones first, one for those that touch."""
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
    """Return, for every index of a text, how many UTF-16 code units are before it."""
    if not text or max(text) <= _LAST_OF_ONE_UNIT:
        return range(len(text) + 1)
    sizes = (2 if character > _LAST_OF_ONE_UNIT else 1 for character in text)
    return list(accumulate(sizes, initial=0))
