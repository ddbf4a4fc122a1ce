"""What a command says and asks, at a terminal or through pipes."""

import asyncio
import os
import shutil
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from bot.errors import BotError

READ_BYTES: Final = 4_096
MAX_LINE_BYTES: Final = 65_536
TERMINAL_LINE_BYTES: Final = 4_095
"""What Linux keeps of a line that is typed or pasted (N_TTY_BUF_SIZE in termios(3))."""
LOCAL_MODES: Final = 3  # their place in what `termios.tcgetattr` returns


class Console:
    """Standard input and output, without blocking the loop: Ctrl-C works while it asks.

    Args:
        keyboard: file descriptor to read answers from.
        screen: where to write.
    """

    def __init__(self, keyboard: int = 0, screen: TextIO | None = None) -> None:
        self._keyboard = keyboard
        self._screen = screen or sys.stdout
        self._unread = bytearray()

    @property
    def columns(self) -> int:
        """How wide the screen is; 80 where the output is not a screen."""
        return shutil.get_terminal_size().columns

    def can_show(self, text: str) -> bool:
        """Whether the screen's encoding has these characters."""
        try:
            text.encode(self._screen.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    def say(self, text: str = "") -> None:
        """Write a line, or several."""
        self._screen.write(f"{text}\n")
        self._screen.flush()

    async def ask(self, question: str, *, secret: bool = False) -> str:
        """Return what somebody answers, without the spaces around it.

        Args:
            question: written before, on the same line.
            secret: do not show on the terminal what is typed.

        Raises:
            BotError: the input has ended, or the terminal has cut the answer.
        """
        if not os.isatty(self._keyboard):
            return await self._answer_to(question)
        if secret:
            with _unechoed(self._keyboard):  # before the question: who types fast is not shown
                answer = await self._answer_to(question)
            self.say()
        else:
            answer = await self._answer_to(question)
        if len(answer) >= TERMINAL_LINE_BYTES:
            raise BotError("The terminal cut that after 4,095 characters; see --help for a way.")
        return answer

    async def _answer_to(self, question: str) -> str:
        self._screen.write(f"{question} ")
        self._screen.flush()
        return (await self._line()).strip()

    async def _line(self) -> str:
        while b"\n" not in self._unread:
            piece = await _read(self._keyboard)
            if not piece:
                raise BotError("The input ended before that was answered.")
            self._unread += piece
            if len(self._unread) > MAX_LINE_BYTES:
                raise BotError("That is too long for an answer.")
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")


async def _read(keyboard: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(keyboard, readable.set)
    except PermissionError:  # a plain file: never waits, so there is no readiness
        return os.read(keyboard, READ_BYTES)
    try:
        await readable.wait()
        return os.read(keyboard, READ_BYTES)
    finally:
        loop.remove_reader(keyboard)


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
