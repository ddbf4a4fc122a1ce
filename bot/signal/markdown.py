r"""Render Markdown of chat models as Signal shows it: plain words and styles.

CommonMark, read by markdown-it, with tables, `~~strikethrough~~` and Signal's `||spoiler||`.
Elements that a phone cannot show as a style become words: bullets, `text (address)` for links,
quotes after `> `, a narrow table as a grid, a wide one as lines. A line break is a line break.
`markdown_rules` describes where chat models deviate from CommonMark.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final, NamedTuple

from markdown_it.token import Token

from bot.signal.markdown_rules import MAX_NESTING, parser
from conversation_store.models import StyledText, StyleRange, TextStyle

MAX_STYLES: Final = 1_000
"""A message that Signal shows as text has room for some 500."""

_LAST_OF_ONE_UNIT: Final = "\uffff"
_SIGNS: Final = {
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
            yield closed.end, _SIGNS[closed.style]
        yield span.start, _SIGNS[span.style]
        opened.append(span)
    for span in reversed(opened):
        yield span.end, _SIGNS[span.style]


MAX_CHARACTERS: Final = 64_000
"""Longer text stays as it was typed: Signal shows no more in one answer."""
MAX_MARKERS: Final = 8_000
"""More characters that may be markup cost the parser too much time."""
MAX_BRACKETS: Final = 3_000
"""Brackets may open links, which cost most."""
GRID_COLUMNS: Final = 40
"""Columns of monospace text that fit on a narrow phone."""

_MARKERS: Final = "\n*_`~|[]<>&#\\-+$:"
_STOPS: Final = f"{_MARKERS}!=%@^{{}}\r"
_WITHOUT_MARKUP: Final = re.compile(
    r"(?!\d+[.)]|[-+=])[^\s\\`*_~|#\[\]<>&!$](?:[^\s\\`*_~|#\[\]<>&!$]| (?! ))*+(?<! )"
)
"""A line without markup, as most short answers are."""
_RULE: Final = "———"
_BULLET: Final = "• "
_BOXES: Final = {"[ ]": "☐ ", "[x]": "☑ ", "[X]": "☑ "}
_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,20}(?:\s*\{.*\})?")
_COLUMN_GAP: Final = "  "
_INLINE_STYLES: Final = {
    "strong": TextStyle.BOLD,
    "em": TextStyle.ITALIC,
    "strikethrough": TextStyle.STRIKETHROUGH,
    "spoiler": TextStyle.SPOILER,
}


def render(text: str) -> StyledText:
    """Return Markdown as text and styles; text that takes too long to parse stays as it was typed.

    Too long takes text that is too long, too deeply nested, or too dense with markup.
    """
    text = well_formed(text).replace("\r\n", "\n").replace("\r", "\n")
    too_long = (
        len(text) > MAX_CHARACTERS
        or sum(map(text.count, _MARKERS)) > MAX_MARKERS
        or text.count("[") > MAX_BRACKETS
    )
    if too_long or _WITHOUT_MARKUP.fullmatch(text):
        return StyledText(text)
    tokens = parser().parse(text)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return StyledText(text)  # the parser drops deeper blocks
    page = _Page(text)
    page.show_blocks(tokens)
    return page.styled()


def stops_in(text: str) -> int:
    """Return the number of characters at which the parser stops, some 10 µs each."""
    return sum(map(text.count, _STOPS))


@dataclass
class _Canvas:
    """Words and styles, one after the other."""

    pieces: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    length: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def write(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def style(self, start: int, style: TextStyle) -> None:
        """Style everything that was written since a place."""
        self.spans.append(Span(start, self.length, style))

    def paste(self, other: "_Canvas") -> None:
        """Add the words and styles of another canvas."""
        shift = self.length
        self.write(other.text)
        self.spans += [Span(shift + start, shift + end, style) for start, end, style in other.spans]

    def show(self, tokens: Sequence[Token], line_break: str) -> None:
        """Write the inside of a paragraph, a heading or a table cell."""
        opened: list[tuple[Token, int]] = []
        for token in tokens:
            start = self.length
            if token.nesting > 0:
                opened.append((token, start))
            elif token.nesting < 0:
                self._close(*opened.pop())
            elif token.type == "code_inline":
                self.write(token.content)
                self.style(start, TextStyle.MONOSPACE)
            elif token.type == "image":
                self.show(token.children or (), line_break)
                self._add_address(start, token, "src")
            else:
                self.write(line_break if token.type.endswith("break") else token.content)

    def _close(self, token: Token, start: int) -> None:
        if token.type == "link_open":
            self._add_address(start, token, "href")
        else:
            self.style(start, _INLINE_STYLES[token.type.removesuffix("_open")])

    def _add_address(self, start: int, token: Token, attribute: str) -> None:
        address, title = str(token.attrs[attribute]), token.attrs.get("title")
        shown = self._text_from(start)
        if title:
            address = f"{title}: {address}"
        if not shown:
            self.write(address)
        elif address and address.removeprefix("mailto:").rstrip("/") != shown.rstrip("/"):
            self.write(f" ({address})")

    def _text_from(self, start: int) -> str:
        pieces = []
        place = self.length
        for piece in reversed(self.pieces):
            if place <= start:
                break
            place -= len(piece)
            pieces.append(piece)
        return "".join(reversed(pieces))


class _Page(_Canvas):
    """Blocks below each other, with the prefixes of lines in quotes and lists."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._lines = source.split("\n")
        self._prefixes: list[str] = []
        self._markers = ""
        self._numbers: list[tuple[str, int]] = []
        self._rows: list[list[Token]] = []  # of the present table
        self._alignments: list[str] = []
        self._paragraph_start = 0
        self._shows: Mapping[str, Callable[[Token], object]] = {
            "blockquote_open": lambda token: self._open_container(token, "> ", "> "),
            "blockquote_close": self._close_container,
            "ordered_list_open": lambda _: self._numbers.append(("", 0)),
            "ordered_list_close": lambda _: self._numbers.pop(),
            "list_item_open": self._open_item,
            "list_item_close": self._close_container,
            "inline": self._paragraph,
            "heading_close": lambda _: self.style(self._paragraph_start, TextStyle.BOLD),
            "fence": self._code,
            "code_block": self._code,
            "hr": self._rule,
            "table_open": self._begin,
            "tr_open": lambda _: self._rows.append([]),
            "th_open": lambda one: self._alignments.append(str(one.attrs.get("style", ""))),
            "table_close": self._close_table,
        }

    def styled(self) -> StyledText:
        """Return everything as one text; no style begins or ends with blanks."""
        text = self.text.rstrip()
        return StyledText(text, ranges_of(text, [_trimmed(text, span) for span in self.spans]))

    def show_blocks(self, tokens: Sequence[Token]) -> None:
        """Add all blocks of a parsed text."""
        for token in tokens:
            show = self._shows.get(token.type)
            if show is not None:
                show(token)

    @property
    def _line_break(self) -> str:
        return "\n" + "".join(self._prefixes)

    def _begin(self, token: Token) -> None:
        """Go to the beginning of a block: after its markers, or on a line of its own."""
        if self._markers:
            self.write(self._markers)
            self._markers = ""
        else:
            self._break(token)

    def _break(self, token: Token) -> None:
        """Begin a line, below a blank one if it was typed so."""
        if self.length:
            line = token.map[0] if token.map else 0
            if not self._lines[line - 1].strip(" \t>"):
                self.write(self._line_break.rstrip(" "))
            self.write(self._line_break)

    def _open_container(self, token: Token, marker: str, prefix: str) -> None:
        if not self._markers:
            self._break(token)
        self._markers += marker
        self._prefixes.append(prefix)

    def _close_container(self, _: Token) -> None:
        self.write(self._markers)
        self._markers = ""
        self._prefixes.pop()

    def _open_item(self, token: Token) -> None:
        marker = f"{self._number(token.info)}{token.markup} " if token.info else _BULLET
        self._open_container(token, marker, "  ")

    def _number(self, typed: str) -> int:
        """Return an item's number as it was typed, or the next one if it was just repeated."""
        typed_before, before = self._numbers[-1]
        number = before + 1 if typed == typed_before else int(typed)
        self._numbers[-1] = (typed, number)
        return number

    def _paragraph(self, token: Token) -> None:
        if self._rows:
            self._rows[-1].append(token)
            return
        children = token.children or []
        box = _BOXES.get(token.content[:3])
        if box and self._markers.endswith((_BULLET, ". ", ") ")) and token.content[3:4].isspace():
            self._markers = self._markers.removesuffix(_BULLET) + box
            children[0].content = children[0].content[4:]
        self._begin(token)
        self._paragraph_start = self.length
        self.show(children, self._line_break)

    def _rule(self, token: Token) -> None:
        self._begin(token)
        self.write(_RULE)

    def _code(self, token: Token) -> None:
        self._begin(token)
        info, code = token.info.strip(), token.content.strip("\n")
        if not code.strip():
            self.write(f"{token.markup}{token.info}")
            return
        if info and not _LANGUAGE.fullmatch(info):
            self.write(info + self._line_break)
        start = self.length
        self.write(code.replace("\n", self._line_break))
        self.style(start, TextStyle.MONOSPACE)

    def _close_table(self, _: Token) -> None:
        """Write a narrow table as a grid, a wide one as lines."""
        rows = [[_cell(token) for token in row] for row in self._rows]
        widths = [max(_width(cell.text) for cell in column) for column in zip(*rows, strict=True)]
        if sum(widths) + len(_COLUMN_GAP) * (len(widths) - 1) <= GRID_COLUMNS:
            self._show_grid(rows, widths)
        elif len(rows) > 1 and all(_width(name.text) <= GRID_COLUMNS for name in rows[0]):
            _show_lines(self, rows, self._line_break)
        else:
            _show_rows(self, rows, self._line_break)
        self._rows, self._alignments = [], []

    def _show_grid(self, rows: Sequence[Sequence[_Canvas]], widths: Sequence[int]) -> None:
        start = self.length
        for number, row in enumerate(rows):
            if number:
                self.write(self._line_break)
            if number == 1:
                self.write(_COLUMN_GAP.join("-" * width for width in widths) + self._line_break)
            blanks = ""
            for cell, width, alignment in zip(row, widths, self._alignments, strict=True):
                free = width - _width(cell.text)
                left = free if alignment.endswith("right") else 0
                left = free // 2 if alignment.endswith("center") else left
                if cell.length:
                    self.write(blanks + " " * left)
                    self.paste(cell)
                    blanks = " " * (free - left) + _COLUMN_GAP
                else:
                    blanks += " " * width + _COLUMN_GAP
        self.style(start, TextStyle.MONOSPACE)


def _show_lines(canvas: _Canvas, rows: Sequence[Sequence[_Canvas]], line_break: str) -> None:
    """Write every cell on a line of its own, after the name of its column."""
    header, *body = rows
    blank_line = ""
    for row in body:
        canvas.write(blank_line)
        lines = [(name, cell) for name, cell in zip(header, row, strict=True) if cell.length]
        for place, (name, cell) in enumerate(lines):
            canvas.write(line_break if place else "")
            start = canvas.length
            canvas.paste(name)
            canvas.style(start, TextStyle.BOLD)
            canvas.write(": " if name.length else "")
            canvas.paste(cell)
        blank_line = line_break.rstrip(" ") + line_break


def _show_rows(canvas: _Canvas, rows: Sequence[Sequence[_Canvas]], line_break: str) -> None:
    """Write a table whose columns have no names to repeat, as it was typed."""
    for number, row in enumerate(rows):
        canvas.write(line_break if number else "")
        for column, cell in enumerate(row):
            canvas.write(" | " if column else "")
            canvas.paste(cell)


def _cell(token: Token) -> _Canvas:
    canvas = _Canvas()
    canvas.show(token.children or (), " ")
    return canvas


def _width(text: str) -> int:
    """Return the number of columns of monospace text."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _trimmed(text: str, span: Span) -> Span:
    blank = "\n" if span.style is TextStyle.MONOSPACE else None
    styled = text[span.start : span.end]
    start = span.start + len(styled) - len(styled.lstrip(blank))
    return Span(start, start + len(styled.strip(blank)), span.style)
