"""The blocks of a Markdown text below each other: paragraphs, lists, quotes, code, tables."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from markdown_it.token import Token

from bot.messaging.markdown_canvas import Canvas
from bot.messaging.markdown_table import Table
from bot.messaging.styled import Span, ranges_of
from conversation_store.models import StyledText, TextStyle

_RULE: Final = "———"

_BULLET: Final = "• "

_BOXES: Final = {"[ ]": "☐ ", "[x]": "☑ ", "[X]": "☑ "}

_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,20}(?:\s*\{.*\})?")


class Page(Canvas):
    """Blocks below each other, with what every line of a quote or a list item begins with."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._lines = source.split("\n")
        self._prefixes: list[str] = []
        self._markers = ""
        self._numbers: list[tuple[str, int]] = []
        self._table: Table | None = None
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
        """Add all blocks of a parsed text."""
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
        self._table = Table()

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


def _trimmed(text: str, span: Span) -> Span:
    blank = "\n" if span.style is TextStyle.MONOSPACE else None
    styled = text[span.start : span.end]
    start = span.start + len(styled) - len(styled.lstrip(blank))
    return Span(start, start + len(styled.strip(blank)), span.style)
