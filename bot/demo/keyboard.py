"""Messages from a terminal's keys, a pipe or a file, without blocking the loop."""

import codecs
import re
import termios
import tty
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bot.demo.bubbles import clusters
from bot.process.reading import read_some

MAX_LINE_CHARACTERS: Final = 10_000
MAX_HISTORY: Final = 100
CONTROL_CHARACTERS: Final = 6  # their place in what `termios.tcgetattr` returns

_KEY: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])|[^\x1b]", re.DOTALL)
"""A character, or the control sequence of a key that has none (ECMA-48, xterm)."""
_WORD_BEFORE: Final = re.compile(r"\S*\s*$")
_WORD_AFTER: Final = re.compile(r"\s*\S*")
_END_OF_INPUT: Final = "\x04"
_INTERRUPT: Final = "\x03"
_PASTE_BEGINS: Final = "\x1b[200~"
_PASTE_ENDS: Final = "\x1b[201~"
_NO_KEY: Final = b"\0"  # POSIX's _POSIX_VDISABLE


@dataclass(frozen=True, slots=True)
class Line:
    """What is typed and not sent yet; `cursor` is how many characters are before the cursor."""

    text: str = ""
    cursor: int = 0


class LineEditor:
    """Turns keys into messages as a shell does: cursor keys, words, deleting, history.

    Lines that are pasted (bracketed paste), or ended with Alt-Enter, are one message. Ctrl-C ends
    the input, and Ctrl-D does on an empty line. Other control sequences are ignored, and so are
    characters after `MAX_LINE_CHARACTERS`.
    """

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self.ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unread = ""
        self._pasting = False
        self._history: list[str] = []
        self._place = 0
        self._unsent = ""
        self._keys: dict[str, Callable[[], None]] = {
            **dict.fromkeys(("\x1b[D", "\x1bOD", "\x02"), self._left),
            **dict.fromkeys(("\x1b[C", "\x1bOC", "\x06"), self._right),
            **dict.fromkeys(("\x1b[A", "\x1bOA", "\x10"), lambda: self._recall(-1)),
            **dict.fromkeys(("\x1b[B", "\x1bOB", "\x0e"), lambda: self._recall(1)),
            **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~", "\x01"), self._to_start),
            **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~", "\x05"), self._to_end),
            **dict.fromkeys(("\x1b[1;5D", "\x1b[1;3D", "\x1bb"), self._word_left),
            **dict.fromkeys(("\x1b[1;5C", "\x1b[1;3C", "\x1bf"), self._word_right),
            **dict.fromkeys(("\x7f", "\b"), lambda: self._erase_to(self._left)),
            **dict.fromkeys(("\x17", "\x1b\x7f"), lambda: self._erase_to(self._word_left)),
            **dict.fromkeys(("\x1b[3~", _END_OF_INPUT), lambda: self._erase_to(self._right)),
            "\x15": lambda: self._erase_to(self._to_start),
            "\x0b": lambda: self._erase_to(self._to_end),
            **dict.fromkeys(("\x1b\r", "\x1b\n"), lambda: self._insert("\n")),
            "\t": lambda: self._insert(" "),
        }

    @property
    def line(self) -> Line:
        """What is typed so far."""
        return Line(self.text, self.cursor)

    def feed(self, data: bytes) -> list[str]:
        """Return the messages that this input finished; empty input is the end."""
        finished: list[str] = []
        self._unread += self._decoder.decode(data, final=not data)
        while not self.ended and (key := _KEY.match(self._unread)):
            self._unread = self._unread[key.end() :]
            self._take(key[0], finished)
        if not data:
            self.ended = True
            finished.append(self.text)
        return finished

    def _take(self, key: str, finished: list[str]) -> None:
        if key in {_PASTE_BEGINS, _PASTE_ENDS}:
            self._pasting = key == _PASTE_BEGINS
        elif self._pasting:
            self._insert("\n" if key == "\r" else key)
        elif key in {"\r", "\n"}:
            finished.append(self.text)
            self._remember(self.text)
            self._show("")
        elif key == _INTERRUPT or (key == _END_OF_INPUT and not self.text):
            self.ended = True
        elif key in self._keys:
            self._keys[key]()
        else:
            self._insert(key)

    def _insert(self, key: str) -> None:
        is_text = key == "\n" or (len(key) == 1 and unicodedata.category(key) != "Cc")
        if is_text and len(self.text) < MAX_LINE_CHARACTERS:
            self.text = f"{self.text[: self.cursor]}{key}{self.text[self.cursor :]}"
            self.cursor += len(key)

    def _erase_to(self, move: Callable[[], None]) -> None:
        """Delete from the cursor to where a movement leads."""
        here = self.cursor
        move()
        start, end = sorted((here, self.cursor))
        self.text, self.cursor = self.text[:start] + self.text[end:], start

    def _left(self) -> None:
        self.cursor = len("".join(clusters(self.text[: self.cursor])[:-1]))

    def _right(self) -> None:
        self.cursor += len("".join(clusters(self.text[self.cursor :])[:1]))

    def _to_start(self) -> None:
        self.cursor = 0

    def _to_end(self) -> None:
        self.cursor = len(self.text)

    def _word_left(self) -> None:
        found = _WORD_BEFORE.search(self.text[: self.cursor])
        self.cursor = found.start() if found else 0

    def _word_right(self) -> None:
        found = _WORD_AFTER.match(self.text, self.cursor)
        self.cursor = found.end() if found else len(self.text)

    def _remember(self, text: str) -> None:
        if text.strip() and self._history[-1:] != [text]:
            self._history = [*self._history[1 - MAX_HISTORY :], text]
        self._place = len(self._history)

    def _recall(self, step: int) -> None:
        """Show what was sent before or after; behind the last of it is what was being typed."""
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return
        if self._place == len(self._history):
            self._unsent = self.text
        self._place = place
        self._show([*self._history, self._unsent][place])

    def _show(self, text: str) -> None:
        self.text, self.cursor = text, len(text)


async def typed_messages(
    keyboard: int, on_change: Callable[[Line], None] | None = None
) -> AsyncIterator[str]:
    """Yield the messages that are typed on a file descriptor until it ends.

    Args:
        keyboard: a file descriptor; put a terminal into `key_by_key` mode.
        on_change: called with the unfinished line after every key.
    """
    editor = LineEditor()
    while not editor.ended:
        messages = editor.feed(await read_some(keyboard))
        if on_change is not None:
            on_change(editor.line)
        for message in messages:
            yield message


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
