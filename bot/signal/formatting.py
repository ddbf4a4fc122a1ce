r"""Render an answer as messages that Signal shows well: plain words and styles.

Markdown is read by markdown-it, as CommonMark with tables, `~~strikethrough~~` and Signal's
`||spoiler||`; `markdown_rules` describes where chat models deviate from CommonMark. Elements that a
phone cannot show as a style become words: bullets, `text (address)` for links, quotes after `> `, a
narrow table as a grid, a wide one as lines. A line break is a line break.

Signal shows up to 2,000 bytes as text and makes a file of a longer message. So a long answer is
split where a reader would pause: between paragraphs, otherwise lines, sentences or words. A code
block or a word that is longer than a message stays whole, and a heading stays with the text below
it. In text without styles, fences mark a code block; otherwise several monospace lines.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from markdown_it.token import Token

from bot.signal.markdown_rules import MAX_NESTING, parser
from conversation_store.models import StyledText, StyleRange, TextStyle

_LAST_OF_ONE_UNIT: Final = "\uffff"


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
    """Return spans in the order of their starts, longer ones first; join touching spans."""
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


MAX_CHARACTERS: Final = 64_000
"""Longer text stays as it was typed: Signal shows no more in one answer."""
MAX_MARKERS: Final = 8_000
"""Characters that may be markup; more would cost the parser too much time."""
MAX_BRACKETS: Final = 3_000
"""Brackets may open links, which take the parser longest."""
GRID_COLUMNS: Final = 40
"""Columns of monospace text that fit on a narrow phone."""
MAX_COLUMNS: Final = 4
"""Columns of a table that fit; a wider table also gets a picture."""

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

    Such text is too long, too deeply nested, or too dense with markup.
    """
    text = well_formed(text).replace("\r\n", "\n").replace("\r", "\n")
    if is_too_dense(text) or _WITHOUT_MARKUP.fullmatch(text):
        return StyledText(text)
    tokens = parser().parse(text)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return StyledText(text)  # the parser drops deeper blocks
    page = _Page(text)
    page.show_blocks(tokens)
    return page.styled()


def is_too_dense(text: str) -> bool:
    """Whether a text is too long or too dense with markup to be parsed."""
    return (
        len(text) > MAX_CHARACTERS
        or sum(map(text.count, _MARKERS)) > MAX_MARKERS
        or text.count("[") > MAX_BRACKETS
    )


def stops_in(text: str) -> int:
    """Return the number of characters at which the parser stops; each takes about 10 µs."""
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
        """Style everything written from index `start` on."""
        self.spans.append(Span(start, self.length, style))

    def paste(self, other: "_Canvas") -> None:
        """Add the words and styles of another canvas."""
        shift = self.length
        self.write(other.text)
        self.spans += [Span(shift + start, shift + end, style) for start, end, style in other.spans]

    def show(self, tokens: Sequence[Token], line_break: str) -> None:
        """Write the inside of a paragraph, a heading or a table cell."""
        opened: list[tuple[Token, int, int]] = []
        for token in tokens:
            start, first = self.length, len(self.pieces)
            if token.nesting > 0:
                opened.append((token, start, first))
            elif token.nesting < 0:
                self._close(*opened.pop())
            elif token.type == "code_inline":
                self.write(token.content)
                self.style(start, TextStyle.MONOSPACE)
            elif token.type == "image":
                self.show(token.children or (), line_break)
                self._add_address(first, token, "src")
            else:
                self.write(line_break if token.type.endswith("break") else token.content)

    def _close(self, token: Token, start: int, first: int) -> None:
        if token.type == "link_open":
            self._add_address(first, token, "href")
        else:
            self.style(start, _INLINE_STYLES[token.type.removesuffix("_open")])

    def _add_address(self, first: int, token: Token, attribute: str) -> None:
        """Write an address after its text, which begins with the piece `first`."""
        address, title = str(token.attrs[attribute]), token.attrs.get("title")
        shown = "".join(self.pieces[first:])
        if title:
            address = f"{title}: {address}"
        if not shown:
            self.write(address)
        elif address and address.removeprefix("mailto:").rstrip("/") != shown.rstrip("/"):
            self.write(f" ({address})")


class _Page(_Canvas):
    """Blocks below each other, with the prefixes of lines in quotes and lists."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._lines = source.split("\n")
        self._prefixes: list[str] = []
        self._markers = ""
        self._numbers: list[tuple[str, int]] = []
        self._rows: list[list[Token]] = []  # of the current table
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
        """Return everything as one text; no style begins or ends with white space."""
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
        """Return an item's number as it was typed; if it repeats the last one, the next number."""
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
        widths = _widths(rows)
        if too_wide(widths):
            _show_lines(self, rows, self._line_break)
        else:
            self._show_grid(rows, widths)
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


def too_wide(widths: Sequence[int]) -> bool:
    """Whether columns of these widths are too wide for a grid on a phone."""
    return sum(widths) + len(_COLUMN_GAP) * (len(widths) - 1) > GRID_COLUMNS


def _widths(rows: Sequence[Sequence[_Canvas]]) -> list[int]:
    return [max(_width(cell.text) for cell in column) for column in zip(*rows, strict=True)]


def wide_table(text: str) -> list[list[str]]:
    """Return the cells of the first table of a text, in rows; empty unless it needs a picture."""
    rows: list[list[_Canvas]] = []
    for token in parser().parse(well_formed(text)):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append(_cell(token))
        elif token.type == "table_close":
            break
    if not rows or (len(rows[0]) <= MAX_COLUMNS and not too_wide(_widths(rows))):
        return []
    return [[cell.text for cell in row] for row in rows]


def _show_lines(canvas: _Canvas, rows: Sequence[Sequence[_Canvas]], line_break: str) -> None:
    """Write every cell on a line of its own, after the name of its column if that is short."""
    header, *body = rows
    if not body or any(_width(name.text) > GRID_COLUMNS for name in header):
        header, body = [_Canvas() for _ in header], [*rows]
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


MAX_PART_BYTES: Final = 2_000
"""Signal shows one message of this size as text."""

MAX_ANSWER_BYTES: Final = 60_000
"""Limit of a whole answer; official apps read up to 64 KiB of one message."""

CUT_NOTICE: Final = "The answer was too long for Signal and ends here."

_CODE_BLOCK: Final = re.compile(
    r"^[ \t]*(`{3,})[^`\n]*$.*?(?:^[ \t]*\1`*(?=[ \t]*$)|\Z)", re.MULTILINE | re.DOTALL
)
_EAST_ASIAN: Final = r"[\u3041-\u3096\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff]"  # kana, ideographs
_STOP: Final = r"[\u3002\uff01\uff1f]"  # their full stop, exclamation and question mark
_CLOSE: Final = r"[\u300d\u300f\uff09]"  # their closing brackets
_PAUSE: Final = re.compile(
    r"(?P<space>\s+)"
    rf"|(?P<sentence>(?:(?<={_STOP})|(?<={_STOP}{_CLOSE}))(?!{_STOP}|{_CLOSE}|\s|\Z))"
    rf"|(?<={_EAST_ASIAN})(?={_EAST_ASIAN})"
)
_SENTENCE_END: Final = re.compile(
    rf"(?:[.!?\u2026]|{_STOP})(?:[\"'\u201d\u2019\u00bb)\]*_]|{_CLOSE})*$"
)
_CLOSING_LENGTH: Final = 4
_ZERO_WIDTH_JOINER: Final = "\u200d"
_WORD_BOUND: Final = 200

_WORD, _SENTENCE, _LINE, _PARAGRAPH = range(4)
"""Ranks of pauses, the weakest first."""


class _Pause(NamedTuple):
    """A place to split: one part ends at `end`, the next starts at `resume`."""

    rank: int
    end: int
    resume: int


def split(text: str) -> tuple[str, ...]:
    """Return the messages of a plain answer, in order, see `split_styled`."""
    return tuple(part.text for part in split_styled(StyledText(text)))


def split_styled(styled: StyledText) -> tuple[StyledText, ...]:
    """Return the messages of an answer, in order.

    Together they contain the whole text, except white space where it is split. A text of more
    than `MAX_ANSWER_BYTES` is cut and says so at its end.
    """
    whole = well_formed(styled.text)
    text, kept = _shortened(whole.rstrip())
    first = len(text) - len(text.lstrip())
    spans = [span._replace(end=min(span.end, kept)) for span in spans_of(whole, styled.styles)]
    parts = _parts(text, spans, first)
    return tuple(_part(text[start:end], start, spans) for start, end in parts)


def _part(text: str, start: int, spans: list[Span]) -> StyledText:
    end = start + len(text)
    cut = (
        Span(max(span.start, start) - start, min(span.end, end) - start, span.style)
        for span in spans
        if span.start < end and start < span.end
    )
    return StyledText(text, ranges_of(text, cut))


def _parts(text: str, spans: list[Span], start: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each message."""
    if len(text.encode()) > MAX_PART_BYTES:
        pauses = list(_pauses(text, spans))
        while (reach := _reach(text, start, MAX_PART_BYTES)) < len(text):
            pause = _best(pauses, start, reach)
            if pause is None:
                break
            if start < pause.end:
                yield start, pause.end
            start = pause.resume
    if start < len(text):
        yield start, len(text)


def _shortened(text: str) -> tuple[str, int]:
    """Return the text to send, and how much of it comes from the given text."""
    if len(text.encode()) <= MAX_ANSWER_BYTES:
        return text, len(text)
    ending = f"\n\n{CUT_NOTICE}"
    kept = text[: _reach(text, 0, MAX_ANSWER_BYTES - len(ending))]
    words = kept.rsplit(maxsplit=1)
    if len(words) > 1 and len(words[1]) <= _WORD_BOUND:
        kept = words[0]
    kept = kept.rstrip()
    return kept + ending, len(kept)


def _reach(text: str, start: int, limit: int) -> int:
    """Return the end of the longest piece from `start` with at most `limit` bytes."""
    piece = text[start : start + limit].encode()[:limit]
    return start + len(piece.decode(errors="ignore"))


def _best(pauses: list[_Pause], start: int, reach: int) -> _Pause | None:
    """Return the last of the strongest pauses within reach, or the first beyond it."""
    first = bisect_right(pauses, start, key=attrgetter("end"))
    beyond = bisect_right(pauses, reach, key=attrgetter("end"))
    if first < beyond:
        return max(pauses[first:beyond])
    return pauses[beyond] if beyond < len(pauses) else None


def _pauses(text: str, spans: list[Span]) -> Iterator[_Pause]:
    """Yield the places to split, except inside code blocks."""
    blocks = [] if spans else [match.span() for match in _CODE_BLOCK.finditer(text)]
    headings = set()
    for start, end, style in spans:
        if style is TextStyle.MONOSPACE and "\n" in text[start:end]:
            blocks.append((start, end))
        elif style is TextStyle.BOLD and text[max(0, start - 1) : start] in {"", "\n"}:
            headings.add(end)
    waiting = deque(sorted(blocks))
    for match in _PAUSE.finditer(text):
        pause = _pause(match)
        while waiting and waiting[0][1] <= pause.end:
            waiting.popleft()
        inside_code = bool(waiting) and waiting[0][0] < pause.resume
        if not inside_code and not _extends(text[pause.resume]):
            # A heading stays with the text below it.
            yield pause._replace(rank=_WORD) if pause.end in headings else pause


def _pause(match: re.Match[str]) -> _Pause:
    space, place = match["space"] or "", match.start()
    newlines = space.count("\n")
    # The indentation of the line after the pause belongs to that line.
    resume = match.end() if not newlines else place + space.rindex("\n") + 1
    if newlines:
        return _Pause(_LINE if newlines == 1 else _PARAGRAPH, place, resume)
    before = match.string[max(0, place - _CLOSING_LENGTH) : place]
    ends_sentence = match["sentence"] is not None or _SENTENCE_END.search(before)
    return _Pause(_SENTENCE if ends_sentence else _WORD, place, resume)


def _extends(character: str) -> bool:
    """Whether a character belongs to the one before it: marks, joiners, skin tones, jamo, tags."""
    return (
        character == _ZERO_WIDTH_JOINER
        or unicodedata.category(character) in {"Mn", "Mc", "Me"}
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\u1160" <= character <= "\u11ff"
        or "\U000e0020" <= character <= "\U000e007f"
    )


def rendered(answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
    """Return the messages of a model's answer in Markdown, below plain lines (`notices`)."""
    return split_styled(_below(notices, render(answer)))


def plain(answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
    """Return the messages of an answer that is shown as it was typed."""
    return tuple(map(StyledText, split("\n\n".join(filter(None, ("\n".join(notices), answer))))))


def _below(notices: Sequence[str], styled: StyledText) -> StyledText:
    """Put plain lines above a text; its styles move with it, counted in UTF-16 units."""
    if not notices:
        return styled
    opening = "\n".join(notices) + "\n\n"
    moved = len(opening.encode("utf-16-le", "replace")) // 2
    styles = (replace(style, start=style.start + moved) for style in styled.styles)
    return StyledText(opening + styled.text, tuple(styles))
