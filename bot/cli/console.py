"""Questions and answers of a command, at a terminal or through pipes."""

import os
import re
import shlex
import shutil
import sys
import termios
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, TextIO

from bot.chat.meaning import Meaning, meaning_of
from bot.errors import BotError
from bot.observability.process import read_some

MAX_LINE_BYTES: Final = 65_536
TERMINAL_LINE_BYTES: Final = 4_095
"""Linux cuts a typed or pasted line after this many bytes (N_TTY_BUF_SIZE in termios(3))."""
WITHOUT_LINKS: Final = frozenset({"", "dumb", "linux"})
"""Values of TERM whose screens show the characters of an OSC 8 link."""
NAME: Final = "signal-tee-bot"
_COMMAND: Final = re.compile(
    rf"\b{NAME}( (?:attest|backup|check|demo|deploy|encrypt|link|pair|ready|register|restore|run"
    r"|setup|signal-cli|watch)\b)"
)
LOCAL_MODES: Final = 3  # their place in what `termios.tcgetattr` returns


class Console:
    """Standard input and output, without blocking the loop: Ctrl-C works while it asks."""

    def __init__(self, keyboard: int = 0, screen: TextIO | None = None) -> None:
        self._keyboard = keyboard
        self._screen = screen or sys.stdout
        self._unread = bytearray()

    def can_show(self, text: str) -> bool:
        """Return whether the screen's encoding has these characters."""
        try:
            text.encode(self._screen.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    def say(self, text: str = "") -> None:
        """Write a line, or several, wrapped to the screen."""
        self.draw(f"{wrapped_on(self._screen, text)}\n")

    def draw(self, text: str) -> None:
        """Write text as it is; the cursor stays after it."""
        self._screen.write(text)
        self._screen.flush()

    def link(self, uri: str) -> None:
        """Write a link that stays whole for a mouse (OSC 8) although it may need several rows."""
        can_link = self._screen.isatty() and os.environ.get("TERM", "") not in WITHOUT_LINKS
        self.draw(f"\x1b]8;;{uri}\x1b\\{uri}\x1b]8;;\x1b\\\n" if can_link else f"{uri}\n")

    async def ask(self, question: str, *, secret: bool = False) -> str:
        """Ask a question, and return the answer without the spaces around it."""
        is_typed = os.isatty(self._keyboard)
        hidden = _unechoed(self._keyboard) if secret and is_typed else nullcontext()
        with hidden:  # before the question, for people who type early
            self.draw(f"{wrapped_on(self._screen, question)} ")
            answer = (await self._line()).strip()
        if secret and is_typed:
            self.say()
        if is_typed and len(answer) >= TERMINAL_LINE_BYTES:
            raise BotError("The terminal cut that after 4,095 characters; see --help for a way.")
        return answer

    async def _line(self) -> str:
        while b"\n" not in self._unread:
            piece = await read_some(self._keyboard)
            if not piece:
                raise BotError("The input ended before that was answered. Scripts: see --help.")
            self._unread += piece
            if len(self._unread) > MAX_LINE_BYTES:
                raise BotError("That is too long for an answer.")
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")


def as_typed(text: str) -> str:
    """Name the program in commands so that they work here as printed, also without a PATH."""
    called = Path(sys.argv[0])
    found = shutil.which(NAME)
    if called.name != NAME or (found is not None and called.samefile(found)):
        return text
    path = os.path.relpath(called)
    if path.startswith(os.pardir):
        path = str(called.absolute())
    return _COMMAND.sub(lambda command: shlex.quote(path) + command[1], text)


def wrapped_on(stream: TextIO | None, text: str) -> str:
    """Wrap a text for people, if the stream is a terminal, with commands as typed here."""
    text = as_typed(text)
    is_terminal = stream is not None and stream.isatty()
    return wrapped(text, shutil.get_terminal_size().columns) if is_terminal else text


def wrapped(text: str, columns: int) -> str:
    """Break each line at spaces; the rest of a list's item is indented like its text."""
    return "\n".join(
        textwrap.fill(
            line,
            columns,
            subsequent_indent=_hanging_indent(line),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def _hanging_indent(line: str) -> str:
    mark = re.match(r" *(\d+\. |- )?", line)
    return " " * (mark.end() if mark else 0)


@contextmanager
def _unechoed(terminal: int) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    silent = termios.tcgetattr(terminal)
    silent[LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def complain(text: str) -> None:
    """Say what went wrong."""
    print(wrapped_on(sys.stderr, text), file=sys.stderr)


async def choose(console: Console, question: str, options: Sequence[str], *, usual: int = 0) -> int:
    """Ask for one of several options, by its number or text, and return its place.

    Args:
        usual: what Enter takes.
    """
    console.say(question)
    for number, option in enumerate(options, 1):
        console.say(f"  {number}. {option}")
    while True:
        answer = await console.ask(f"Number [{usual + 1}]:") or str(usual + 1)
        if answer in options:
            return options.index(answer)
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(options):
            return int(answer) - 1
        console.say(f"Please answer with a number from 1 to {len(options)}.")


async def agrees(console: Console, question: str) -> bool:
    """Ask a question, and return whether the answer is yes; Enter means yes."""
    while True:
        answer = await console.ask(f"{question} [Y/n]")
        meaning = meaning_of(answer) if answer else Meaning.YES
        if meaning in {Meaning.YES, Meaning.NO}:
            return meaning is Meaning.YES
        console.say("Please answer yes or no.")
