"""Typed lines from a terminal, a pipe or a file, without blocking the loop."""

import codecs
import re
import termios
import tty
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from bot.demo.bubbles import clusters
from bot.process.reading import read_some

MAX_LINE_CHARACTERS: Final = 10_000
CONTROL_CHARACTERS: Final = 6  # their place in what `termios.tcgetattr` returns

_CONTROL_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
_END_OF_INPUT: Final = "\x04"
_INTERRUPT: Final = "\x03"
_NO_KEY: Final = b"\0"  # POSIX's _POSIX_VDISABLE


class LineEditor:
    """Turns keys into lines as a terminal does: backspace, Ctrl-W (a word), Ctrl-U (all).

    Ctrl-C ends the input, and Ctrl-D does on an empty line. There is no cursor: arrows and other
    control sequences are ignored, and so are characters after `MAX_LINE_CHARACTERS`.
    """

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that this input finished; empty input is the end."""
        finished: list[str] = []
        for key in _CONTROL_SEQUENCE.sub("", self._decoder.decode(data, final=not data)):
            if self.ended:
                break
            if key in "\r\n":
                finished.append(self.text)
                self.text = ""
            else:
                self._press(key)
        if not data:
            self.ended = True
            finished.append(self.text)
        return finished

    def _press(self, key: str) -> None:
        match key:
            case "\x7f" | "\b":
                self.text = "".join(clusters(self.text)[:-1])
            case "\x17":
                self.text = re.sub(r"\S*\s*$", "", self.text)
            case "\x15":
                self.text = ""
            case _ if key == _INTERRUPT or (key == _END_OF_INPUT and not self.text):
                self.ended = True
            case "\t":
                self.text += " "
            case _ if unicodedata.category(key) != "Cc" and len(self.text) < MAX_LINE_CHARACTERS:
                self.text += key


async def typed_lines(
    keyboard: int, on_change: Callable[[str], None] | None = None
) -> AsyncIterator[str]:
    """Yield the lines that are typed on a file descriptor until it ends.

    Args:
        keyboard: a file descriptor; put a terminal into `key_by_key` mode.
        on_change: called with the unfinished line after every key.
    """
    editor = LineEditor()
    while not editor.ended:
        lines = editor.feed(await read_some(keyboard))
        if on_change is not None:
            on_change(editor.text)
        for line in lines:
            yield line


@contextmanager
def key_by_key(terminal: int) -> Iterator[None]:
    """Get each key of a terminal at once and without an echo, Ctrl-C included."""
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    changed = termios.tcgetattr(terminal)
    changed[CONTROL_CHARACTERS][termios.VINTR] = _NO_KEY
    termios.tcsetattr(terminal, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
