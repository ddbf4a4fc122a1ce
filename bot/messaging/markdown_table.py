"""Tables for a phone: a grid where it is narrow, else one line for each cell."""

import unicodedata
from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token

from bot.messaging.markdown_canvas import Canvas
from conversation_store.models import TextStyle

GRID_COLUMNS: Final = 40
"""How many columns of monospace text fit on a narrow phone."""

_COLUMN_GAP: Final = "  "


class Table:
    """The cells of a table, until all of them are known."""

    def __init__(self) -> None:
        self.alignments: list[str] = []
        self.rows: list[list[Token]] = []

    def show_on(self, canvas: Canvas, line_break: str) -> None:
        """Write the table, with this between two lines."""
        cells = [[_cell(token) for token in row] for row in self.rows]
        widths = [max(_width(cell.text) for cell in column) for column in zip(*cells, strict=True)]
        if sum(widths) + len(_COLUMN_GAP) * (len(widths) - 1) <= GRID_COLUMNS:
            self._show_grid(canvas, cells, widths, line_break)
        else:
            _show_lines(canvas, cells, line_break)

    def _show_grid(
        self,
        canvas: Canvas,
        rows: Sequence[Sequence[Canvas]],
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


def _show_lines(canvas: Canvas, rows: Sequence[Sequence[Canvas]], line_break: str) -> None:
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


def _show_rows(canvas: Canvas, rows: Sequence[Sequence[Canvas]], line_break: str) -> None:
    """Write a table whose columns have no names to repeat, as it was typed."""
    for number, row in enumerate(rows):
        canvas.write(line_break if number else "")
        for column, cell in enumerate(row):
            canvas.write(" | " if column else "")
            canvas.paste(cell)


def _cell(token: Token) -> Canvas:
    canvas = Canvas()
    canvas.show(token.children or (), " ")
    return canvas


def _width(text: str) -> int:
    """Return how many columns of monospace text it takes."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
