"""The phone's screen: a terminal, or plain lines anywhere else."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol, TextIO

from bot.demo.bubbles import DIM, MIN_COLUMNS, RESET, Bubble, cells, clean, clusters, render
from bot.demo.keyboard import Line

PLAIN_COLUMNS: Final = 80
PLAIN_ROWS: Final = 24
REMEMBERED_BUBBLES: Final = 100
PROMPT: Final = "> "
INVITATION: Final = "Write a message. /help; /quit or Ctrl-D ends."
TYPING: Final = "Bot is typing…"
LINE_BREAK: Final = "⏎"
CLEAR_BELOW: Final = "\x1b[J"
HOME: Final = "\x1b[H"
PASTE_MARKED: Final = "\x1b[?2004h"
PASTE_UNMARKED: Final = "\x1b[?2004l"
"""Whether a terminal says where a paste begins and ends (xterm's bracketed paste)."""


class Screen(Protocol):
    """Shows bubbles one below the other: PlainScreen and TerminalScreen."""

    def show(self, bubble: Bubble) -> None:
        """Add a bubble at the bottom."""
        ...

    def edit(self, replaces: int, bubble: Bubble) -> None:
        """Replace the bubble with timestamp `replaces`, if it can be reached."""
        ...

    def show_input(self, line: Line | None) -> None:
        """Show the unfinished line; None while nothing can be typed."""
        ...

    def show_typing(self, typing: bool) -> None:
        """Show whether the bot is writing."""
        ...

    def redraw(self) -> None:
        """Draw everything again, because the window has changed."""
        ...


def screen_on(output: TextIO) -> Screen:
    """Return the screen that fits an output.

    Colour and cursor movement are for terminals only; `NO_COLOR` (https://no-color.org) and
    `TERM=dumb` are respected.
    """
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="replace")
    if not output.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return PlainScreen(output)
    return TerminalScreen(
        output, size=lambda: _size_of(output), colour=not os.environ.get("NO_COLOR")
    )


def _size_of(terminal: TextIO) -> os.terminal_size:
    columns, rows = os.get_terminal_size(terminal.fileno())
    return os.terminal_size((columns or PLAIN_COLUMNS, rows or PLAIN_ROWS))


class PlainScreen:
    """A transcript: an edited bubble is printed again, and typing is not shown."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def show(self, bubble: Bubble) -> None:
        """Print a bubble."""
        rows = render(bubble, columns=PLAIN_COLUMNS, colour=False)
        self._output.write("\n".join(rows) + "\n")
        self._output.flush()

    def edit(self, replaces: int, bubble: Bubble) -> None:
        """Print the new text."""
        del replaces
        self.show(replace(bubble, edited=True))

    def show_input(self, line: Line | None) -> None:
        """Show nothing: whatever reads the keys echoes them."""

    def show_typing(self, typing: bool) -> None:
        """Show nothing: it would not go away again."""

    def redraw(self) -> None:
        """Do nothing: a transcript stays as it is."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    bubble: Bubble
    rows: int


class TerminalScreen:
    """Bubbles that scroll up, and below them the input row; above that, whether the bot is typing.

    The cursor rests in the last row, so drawing starts by clearing these two. An edit goes up to
    its bubble and draws it and all bubbles below it again.

    Args:
        output: a terminal that knows ECMA-48.
        size: asked again for every bubble, because windows change.
        colour: whether to use it.
    """

    def __init__(
        self, output: TextIO, *, size: Callable[[], os.terminal_size], colour: bool
    ) -> None:
        self._output = output
        self._size = size
        self._columns = size().columns
        self._colour = colour
        self._drawn: list[_Drawn] = []
        self._input: Line | None = None
        self._typing = False
        self._rows_above = 0

    def show(self, bubble: Bubble) -> None:
        """Add a bubble at the bottom."""
        self._write(self._draw(bubble))

    def edit(self, replaces: int, bubble: Bubble) -> None:
        """Draw the bubble in place of the other, or at the bottom if that is out of reach."""
        bubble = replace(bubble, edited=True)
        place = self._place_of(replaces)
        if place is None:
            self.show(bubble)
            return
        redrawn, self._drawn[place:] = self._drawn[place:], []
        rows = [self._draw(one) for one in (bubble, *(drawn.bubble for drawn in redrawn[1:]))]
        self._write("".join(rows), rows_up=sum(drawn.rows for drawn in redrawn))

    def show_input(self, line: Line | None) -> None:
        """Show the unfinished line in the last row."""
        if (line is None) is not (self._input is None):
            self._output.write(PASTE_UNMARKED if line is None else PASTE_MARKED)
        self._input = line
        self._write("")

    def show_typing(self, typing: bool) -> None:
        """Show above the last row whether the bot is writing."""
        if typing is not self._typing:
            self._typing = typing
            self._write("")

    def redraw(self) -> None:
        """Draw the last bubbles again, as many as the window has room for."""
        size = self._size()
        shown, room = [one.bubble for one in self._drawn], size.lines - 2
        self._drawn.clear()
        fitting: list[Bubble] = []
        for bubble in reversed(shown):
            room -= len(render(bubble, columns=size.columns, colour=False))
            if room < 0:
                break
            fitting.insert(0, bubble)
        self._rows_above = 0
        self._write("".join(map(self._draw, fitting)), start=HOME)

    def _place_of(self, timestamp: int) -> int | None:
        """Return where in `_drawn` a bubble is, if it can still be drawn over.

        It must be on the screen, and the window as wide as before: a terminal wraps rows again
        when its width changes, and their number is then unknown.
        """
        columns, lines = self._size()
        if columns != self._columns or columns < MIN_COLUMNS:
            return None
        rows = 0
        for place in reversed(range(len(self._drawn))):
            rows += self._drawn[place].rows
            if rows >= lines:
                return None
            if self._drawn[place].bubble.timestamp == timestamp:
                return place
        return None

    def _draw(self, bubble: Bubble) -> str:
        """Return a bubble's rows, and remember it as drawn."""
        columns = self._size().columns
        if columns != self._columns:
            self._drawn.clear()
            self._columns = columns
        rows = render(bubble, columns=columns, colour=self._colour)
        self._drawn = [*self._drawn[1 - REMEMBERED_BUBBLES :], _Drawn(bubble, len(rows))]
        return "\n".join(rows) + "\n"

    def _write(self, text: str, rows_up: int = 0, start: str = "\r") -> None:
        rows_up += self._rows_above
        up = f"\x1b[{rows_up}A" if rows_up else ""
        typing = f"{self._dimmed(TYPING)}\n" if self._typing and self._input is not None else ""
        self._rows_above = 1 if typing else 0
        self._output.write(f"{start}{up}{CLEAR_BELOW}{text}{typing}{self._input_row()}")
        self._output.flush()

    def _input_row(self) -> str:
        if self._input is None:
            return ""
        room = max(0, self._size().columns - cells(PROMPT) - 2)
        text, cursor = self._input.text, self._input.cursor
        if not text:
            return f"{PROMPT}{self._dimmed(INVITATION[:room])}{_cursor_behind(PROMPT)}"
        after = _on_one_row(text[cursor:])
        # Of what is behind the cursor some is always seen, however long the rest is.
        before = _tail(_on_one_row(text[:cursor]), room - min(cells(after[:room]), room // 3))
        shown = f"{PROMPT}{before}"
        if not after:
            return shown
        return f"{shown}{_head(after, room - cells(before))}{_cursor_behind(shown)}"

    def _dimmed(self, text: str) -> str:
        return f"{DIM}{text}{RESET}" if self._colour else text


def _cursor_behind(shown: str) -> str:
    return f"\r\x1b[{cells(shown)}C"


def _on_one_row(text: str) -> str:
    return clean(text).replace("\n", LINE_BREAK)


def _head(text: str, columns: int) -> str:
    """Return the beginning of a text, as much as fits."""
    kept = clusters(text[: columns * 8])
    while cells("".join(kept)) > columns:
        del kept[-1]
    return "".join(kept)


def _tail(text: str, columns: int) -> str:
    """Return the end of a text, as much as fits."""
    kept = clusters(text[-columns * 8 :])
    while cells("".join(kept)) > columns:
        del kept[0]
    return "".join(kept)
