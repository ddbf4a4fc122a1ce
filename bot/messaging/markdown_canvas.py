"""Words and styles, as they come out of Markdown."""

from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token

from bot.messaging.styled import Span
from conversation_store.models import TextStyle

_INLINE_STYLES: Final = {
    "strong": TextStyle.BOLD,
    "em": TextStyle.ITALIC,
    "strikethrough": TextStyle.STRIKETHROUGH,
    "spoiler": TextStyle.SPOILER,
}


class Canvas:
    """Words and styles, one after the other."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.spans: list[Span] = []
        self.length = 0

    @property
    def text(self) -> str:
        """All words so far."""
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        """Add words."""
        self._pieces.append(text)
        self.length += len(text)

    def style(self, start: int, style: TextStyle) -> None:
        """Give a style to what was written from a place on."""
        self.spans.append(Span(start, self.length, style))

    def paste(self, other: "Canvas") -> None:
        """Add what is on another canvas, with its styles."""
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
