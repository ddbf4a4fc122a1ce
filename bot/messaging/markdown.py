r"""What a chat model writes as Markdown, as Signal shows it.

CommonMark, read by markdown-it, with tables, `~~strikethrough~~` and Signal's `||spoiler||`. What
a phone cannot show as a style becomes words: bullets, `text (address)` for links, quotes behind
`> `, a table as a grid where it is narrow, else as lines. Chat models bend Markdown in ways of
their own, and nothing that they mean as words may vanish, so some rules are tighter than
CommonMark's:

- a marker between two letters or digits opens nothing (`2*3`, `x**2`); scripts that are written
  without spaces between their words are free of this, and of the rules about punctuation;
- addresses, Windows paths and formulas (`$x$`, `\(x\)`, `\[x\]`) are no place for markup;
- HTML, link definitions and underlines below a line are shown as they were typed;
- a quote ends at the first line without `>`;
- a line break is a line break.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

from bot.messaging.styled import Span, StyledText, TextStyle, ranges_of, well_formed

MAX_CHARACTERS: Final = 64_000
"""What is longer stays as it was typed: Signal shows no more in one answer."""

MAX_MARKERS: Final = 8_000
"""The same for characters that may be markup, because each of them costs the parser time."""

MAX_BRACKETS: Final = 3_000
"""The same for brackets that may open a link, which cost most."""

MAX_CELLS: Final = 8_000
"""How many columns times lines a table may have."""

MAX_NESTING: Final = 20
"""The same for blocks inside each other; a list takes two levels."""

GRID_COLUMNS: Final = 40
"""How many columns of monospace text fit on a narrow phone."""

_MARKERS: Final = "\n*_`~|[]<>&#\\-+$:"
_STOPS: Final = f"{_MARKERS}!=%@^{{}}\r"
_FORMULA_CHARACTERS: Final = 500
_RULE: Final = "———"
_COLUMN_GAP: Final = "  "
_BULLET: Final = "• "
_BOXES: Final = {"[ ]": "☐ ", "[x]": "☑ ", "[X]": "☑ "}

_WITH_SPACED_WORDS: Final = "\u0590"
"""Latin, Greek, Cyrillic and Armenian letters and digits are before this one."""

_ADDRESS: Final = re.compile(r"://[^\s<>*`|\[\]\"\\]+")
_SCHEME: Final = re.compile(r"\b(?:https?|ftp)$", re.IGNORECASE)
_AFTER_ADDRESS: Final = "_~.,;:!?'"
_WINDOWS_PATH: Final = re.compile(r":(?:\\\*{0,2}[^\s\"<>|`*\\]*)+")
_DRIVE: Final = re.compile(r"\b[A-Za-z]$")
_FORMULA_ENDS: Final = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_DOLLARS: Final = re.compile(  # Signs of money have blanks, markup or digits next to them.
    rf"\$(?!\s)(?:(?!\*\*)[^$`\n]){{1,{_FORMULA_CHARACTERS}}}+(?<!\s)\$(?!\w)"
)
_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,20}(?:\s*\{.*\})?")
_BAR: Final = re.compile(r"\\.|(?P<bar>\|)")
_BAR_OUTSIDE_CODE: Final = re.compile(r"\\.|(`++)[^`]++\1(?!`)|(?P<bar>\|)")

_WITHOUT_MARKUP: Final = re.compile(
    r"(?!\d+[.)]|[-+=])[^\s\\`*_~|#\[\]<>&!$](?:[^\s\\`*_~|#\[\]<>&!$]| (?! ))*+(?<! )"
)
"""A line that means itself, as most short answers do."""

_PAIRS: Final = {"~": "strikethrough", "|": "spoiler"}
_INLINE_STYLES: Final = {
    "strong": TextStyle.BOLD,
    "em": TextStyle.ITALIC,
    "strikethrough": TextStyle.STRIKETHROUGH,
    "spoiler": TextStyle.SPOILER,
}


def render(text: str) -> StyledText:
    """Return Markdown as the text and the styles that Signal shows.

    What is too long, too deep or too dense with markup to be read within a moment stays as it
    was typed.
    """
    text = well_formed(text).replace("\r\n", "\n").replace("\r", "\n")
    if _takes_too_long(text) or _WITHOUT_MARKUP.fullmatch(text):
        return StyledText(text)
    tokens = _parser().parse(text)
    if any(token.level >= MAX_NESTING - 1 for token in tokens):
        return StyledText(text)  # the parser drops what is deeper
    page = _Page(text)
    page.show_blocks(tokens)
    return page.styled()


def markers_in(text: str) -> int:
    """Return how many characters of a text may be markup; they cost the parser most time."""
    return sum(map(text.count, _MARKERS))


def stops_in(text: str) -> int:
    """Return at how many characters of a text the parser stops, some 10 µs each."""
    return sum(map(text.count, _STOPS))


def _takes_too_long(text: str) -> bool:
    return (
        len(text) > MAX_CHARACTERS
        or markers_in(text) > MAX_MARKERS
        or text.count("[") > MAX_BRACKETS
    )


class _Parser(MarkdownIt):
    """Leaves addresses as they were typed; to people, percent signs say nothing."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        return link


@cache
def _parser() -> _Parser:
    parser = _Parser("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable("table").disable(["reference", "lheading", "html_block", "html_inline"])
    parser.block.ruler.at("table", _table_of_a_size, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.push("end_of_quote", _ends_quote, {"alt": ["blockquote"]})
    parser.core.ruler.after("block", "whole_cells", _whole_cells)
    parser.inline.add_terminator_char("|")
    parser.inline.ruler.before("escape", "verbatim", _verbatim)
    parser.inline.ruler.at("emphasis", _marker_run)
    parser.inline.ruler2.after("balance_pairs", "pairs", _close_pairs)
    return parser


def _table_of_a_size(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Leave a table as text that may have too many cells, with those that a row has too few of."""
    columns = state.src.count("|", state.bMarks[first], state.eMarks[first])
    return columns * (end - first) <= MAX_CELLS and table(state, first, end, silent)


def _ends_quote(state: StateBlock, _first: int, _end: int, silent: bool) -> bool:
    """End a quote at the first line without `>`, where the parser asks whether it goes on.

    CommonMark lets a paragraph go on there. To find out, the parser reads to the end of the text,
    for each quote anew, also where no paragraph can go on.
    """
    return silent and state.parentType == "blockquote"  # a table asks the same rules


def _marker_run(state: StateInline, silent: bool) -> bool:
    """Note every marker of a run as something that may open or close a style."""
    marker = state.src[state.pos]
    if silent or marker not in "*_~|":
        return False
    end = state.pos
    while end < state.posMax and state.src[end] == marker:
        end += 1
    length = end - state.pos
    opens, closes = _flanks(state.src, state.pos, end)
    size = 2 if marker in _PAIRS else 1
    if marker in _PAIRS and length != size:
        opens = closes = False
        size = length
    for _ in range(length // size):
        state.push("text", "", 0).content = marker * size
        if opens or closes:
            rule_of_three = length if size == 1 else 0
            token = len(state.tokens) - 1
            delimiter = Delimiter(ord(marker), rule_of_three, token, -1, opens, closes)
            state.delimiters.append(delimiter)
    state.pos = end
    return True


def _flanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Whether a run of markers can open and can close, by what is on both sides of it."""
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    word_before, word_after = _is_of_spaced_word(before), _is_of_spaced_word(after)
    opens = not after.isspace() and not (_is_punctuation(after) and word_before)
    closes = not before.isspace() and not (_is_punctuation(before) and word_after)
    if text[start] == "_":
        return opens and not before.isalnum(), closes and not after.isalnum()
    if word_before and word_after:
        return False, closes and end - start > 1
    return opens, closes


def _is_of_spaced_word(character: str) -> bool:
    return character < _WITH_SPACED_WORDS and character.isalnum()


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _close_pairs(state: StateInline) -> None:
    """Make tokens of the pairs that were found, as markdown-it does for emphasis."""
    nested = (meta["delimiters"] for meta in state.tokens_meta if meta and "delimiters" in meta)
    for delimiters in chain([state.delimiters], nested):
        for opener in delimiters:
            name = _PAIRS.get(chr(opener.marker))
            if name is not None and opener.end >= 0:
                closing = delimiters[opener.end].token
                state.tokens[opener.token] = Token(f"{name}_open", "", 1)
                state.tokens[closing] = Token(f"{name}_close", "", -1)


def _verbatim(state: StateInline, silent: bool) -> bool:
    """Take addresses, Windows paths and formulas as they are."""
    text, start = state.src, state.pos
    match text[start]:
        case ":":
            end = _end_of_place(text, start)
        case "\\" | "$":
            end = _end_of_formula(text, start)
        case _:
            return False
    if end is None:
        return False
    end = min(end, state.posMax)
    if not silent:
        state.append_pending(text[start:end])
    state.pos = end
    return True


def _end_of_place(text: str, colon: int) -> int | None:
    before = text[max(0, colon - 6) : colon]
    # What is before the colon is looked at first: what follows may be long, and be read again
    # from each colon in it.
    if _SCHEME.search(before) and (address := _ADDRESS.match(text, colon)):
        return colon + len(address[0].rstrip(_AFTER_ADDRESS))
    if _DRIVE.search(before) and (path := _WINDOWS_PATH.match(text, colon)):
        return path.end()
    return None


def _end_of_formula(text: str, start: int) -> int | None:
    bound = start + _FORMULA_CHARACTERS
    ending = _FORMULA_ENDS.get(text[start : start + 2])
    if ending is not None:
        found = text.find(ending, start + 2, bound)
        return found + 2 if found > start + 2 else None
    if text[start] != "$":
        return None
    formula = _DOLLARS.match(text, start)
    return formula.end() if formula else None


def _whole_cells(state: StateCore) -> None:
    """Give the last cell what a row has too much of, where the parser drops it."""
    lines = state.src.split("\n")
    row: list[Token] = []
    inside = False
    for token in state.tokens:
        if token.type in {"tr_open", "tr_close"}:
            inside = token.type == "tr_open"
            if not inside and row[0].map is not None:
                _refill(row, lines[row[0].map[0]].strip(" \t>"))
            row = []
        elif inside and token.type == "inline":
            row.append(token)


def _refill(row: Sequence[Token], line: str) -> None:
    if len(_cells(line, _BAR)) <= len(row):
        return
    cells = _cells(line, _BAR_OUTSIDE_CODE)  # a bar is more often code than a cell too much
    if len(cells) < len(row):
        cells = _cells(line, _BAR)
    last = len(row) - 1
    cells[last:] = ["|".join(cells[last:])]
    for token, cell in zip(row, cells, strict=True):
        token.content = cell.replace("\\|", "|").strip()


def _cells(line: str, bar: re.Pattern[str]) -> list[str]:
    bars = [match.start() for match in bar.finditer(line) if match["bar"]]
    edges = pairwise([-1, *bars, len(line)])
    cells = [line[before + 1 : after] for before, after in edges]
    first = 1 if not cells[0] else 0
    return cells[first : -1 if not cells[-1] else None]


class _Canvas:
    """Words and styles, one after the other."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.spans: list[Span] = []
        self.length = 0

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        self._pieces.append(text)
        self.length += len(text)

    def style(self, start: int, style: TextStyle) -> None:
        """Give a style to what was written from a place on."""
        self.spans.append(Span(start, self.length, style))

    def paste(self, other: "_Canvas") -> None:
        shift = self.length
        self.write(other.text)
        self.spans += [Span(shift + start, shift + end, style) for start, end, style in other.spans]

    def show(self, tokens: Sequence[Token], line_break: str) -> None:
        """Write what is inside a paragraph, a heading or a table cell."""
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
        for piece in reversed(self._pieces):
            if place <= start:
                break
            place -= len(piece)
            pieces.append(piece)
        return "".join(reversed(pieces))


class _Page(_Canvas):
    """Blocks below each other, with what every line of a quote or a list item begins with."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._lines = source.split("\n")
        self._prefixes: list[str] = []
        self._markers = ""
        self._numbers: list[tuple[str, int]] = []
        self._table: _Table | None = None
        self._shows: Mapping[str, Callable[[Token], None]] = {
            "blockquote_open": self._open_quote,
            "blockquote_close": self._close_container,
            "ordered_list_open": self._open_numbers,
            "ordered_list_close": self._close_numbers,
            "list_item_open": self._open_item,
            "list_item_close": self._close_container,
            "inline": self._paragraph,
            "heading_close": self._heading,
            "fence": self._code,
            "code_block": self._code,
            "hr": self._rule,
            "table_open": self._open_table,
            "tr_open": self._open_row,
            "th_open": self._open_column,
            "table_close": self._close_table,
        }
        self._paragraph_start = 0

    def styled(self) -> StyledText:
        """Return everything as one text; styles neither begin nor end with blanks."""
        text = self.text.rstrip()
        return StyledText(text, ranges_of(text, [_trimmed(text, span) for span in self.spans]))

    def show_blocks(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            show = self._shows.get(token.type)
            if show is not None:
                show(token)

    @property
    def _line_break(self) -> str:
        return "\n" + "".join(self._prefixes)

    def _begin(self, token: Token) -> None:
        """Go to where a block begins: behind its markers, or to a line of its own."""
        if self._markers:
            self.write(self._markers)
            self._markers = ""
        else:
            self._break(token)

    def _break(self, token: Token) -> None:
        """Begin a line, below a blank one if that is how it was typed."""
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

    def _open_quote(self, token: Token) -> None:
        self._open_container(token, "> ", "> ")

    def _open_numbers(self, _: Token) -> None:
        self._numbers.append(("", 0))

    def _close_numbers(self, _: Token) -> None:
        self._numbers.pop()

    def _open_item(self, token: Token) -> None:
        marker = f"{self._number(token.info)}{token.markup} " if token.info else _BULLET
        self._open_container(token, marker, "  ")

    def _number(self, typed: str) -> int:
        """Return an item's number as it was typed, or the next one where it is just repeated."""
        typed_before, before = self._numbers[-1]
        number = before + 1 if typed == typed_before else int(typed)
        self._numbers[-1] = (typed, number)
        return number

    def _paragraph(self, token: Token) -> None:
        if self._table is not None:
            self._table.rows[-1].append(token)
            return
        children = token.children or []
        box = _BOXES.get(token.content[:3])
        if box and self._markers.endswith((_BULLET, ". ", ") ")) and token.content[3:4].isspace():
            self._markers = self._markers.removesuffix(_BULLET) + box
            children[0].content = children[0].content[4:]
        self._begin(token)
        self._paragraph_start = self.length
        self.show(children, self._line_break)

    def _heading(self, _: Token) -> None:
        self.style(self._paragraph_start, TextStyle.BOLD)

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

    def _open_table(self, token: Token) -> None:
        self._begin(token)
        self._table = _Table()

    def _open_row(self, _: Token) -> None:
        if self._table is not None:
            self._table.rows.append([])

    def _open_column(self, token: Token) -> None:
        if self._table is not None:
            self._table.alignments.append(str(token.attrs.get("style", "")))

    def _close_table(self, _: Token) -> None:
        if self._table is not None:
            self._table.show_on(self, self._line_break)
        self._table = None


class _Table:
    """The cells of a table, until all of them are known."""

    def __init__(self) -> None:
        self.alignments: list[str] = []
        self.rows: list[list[Token]] = []

    def show_on(self, canvas: _Canvas, line_break: str) -> None:
        cells = [[_cell(token) for token in row] for row in self.rows]
        widths = [max(_width(cell.text) for cell in column) for column in zip(*cells, strict=True)]
        if sum(widths) + len(_COLUMN_GAP) * (len(widths) - 1) <= GRID_COLUMNS:
            self._show_grid(canvas, cells, widths, line_break)
        else:
            _show_lines(canvas, cells, line_break)

    def _show_grid(
        self,
        canvas: _Canvas,
        rows: Sequence[Sequence[_Canvas]],
        widths: Sequence[int],
        line_break: str,
    ) -> None:
        start = canvas.length
        for number, row in enumerate(rows):
            if number:
                canvas.write(line_break)
            if number == 1:
                canvas.write(_COLUMN_GAP.join("-" * width for width in widths) + line_break)
            blanks = ""
            for cell, width, alignment in zip(row, widths, self.alignments, strict=True):
                free = width - _width(cell.text)
                left = _free_on_the_left(alignment, free)
                if cell.length:
                    canvas.write(blanks + " " * left)
                    canvas.paste(cell)
                    blanks = " " * (free - left) + _COLUMN_GAP
                else:
                    blanks += " " * width + _COLUMN_GAP
        canvas.style(start, TextStyle.MONOSPACE)


def _free_on_the_left(alignment: str, free: int) -> int:
    if alignment.endswith("right"):
        return free
    return free // 2 if alignment.endswith("center") else 0


def _show_lines(canvas: _Canvas, rows: Sequence[Sequence[_Canvas]], line_break: str) -> None:
    """Write every cell of a wide table on a line of its own, behind the name of its column."""
    header, *body = rows
    if not body or any(_width(name.text) > GRID_COLUMNS for name in header):
        _show_rows(canvas, rows, line_break)
        return
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
    """Return how many columns of monospace text it takes."""
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
