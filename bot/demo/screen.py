"""The phone's screens: a terminal with bubbles and a line of input, or a plain transcript.

The terminal needs rich and prompt-toolkit, the extra `demo`; without them, the transcript remains.
"""

import io
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TextIO

from bot.observability.process import read_some
from bot.signal.formatting import spans_of
from conversation_store.models import Attachment, StyleRange, TextStyle

MAX_MESSAGE_CHARACTERS: Final = 10_000
MAX_LINE_BYTES: Final = 65_536
"""The plain screen takes a longer line in pieces."""

SHARE_OF_THE_WIDTH: Final = 0.75
MIN_BUBBLE_COLUMNS: Final = 28
TEXT_FRAME: Final = 4
FOOTER_FRAME: Final = 6
"""Columns of the frame next to a text and next to the footer."""

KILO: Final = 1_000
MEGA: Final = 1_000_000
PROGRESS_MARK: Final = "🔧 "
INVITATION: Final = "Write a message. /help; /quit or Ctrl-D ends."
TYPING: Final = "Bot is typing…"
PROMPT: Final = "> "

LOOKS: Final = {
    TextStyle.BOLD: "bold",
    TextStyle.ITALIC: "italic",
    TextStyle.STRIKETHROUGH: "strike",
    TextStyle.MONOSPACE: "yellow",  # a terminal has only one font
    TextStyle.SPOILER: "reverse",
}

_LINE_ENDS: Final = re.compile("\r\n|[\r\u2028\u2029]")
_BIDI_CONTROLS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")
_STEERING: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
"""Controls of a terminal except for the end of a line, and halves of characters."""


@dataclass(frozen=True, slots=True)
class Bubble:
    """Message as a phone shows it.

    Attributes:
        mine: written on this phone.
        time: of writing, ready to be shown.
        quote: the beginning of the message that it replies to, if any.
        note: a text of the phone itself, without sender and time.
    """

    text: str
    mine: bool = False
    time: str = ""
    edited: bool = False
    attachments: tuple[Attachment, ...] = ()
    styles: tuple[StyleRange, ...] = ()
    quote: str = ""
    note: bool = False

    @property
    def footer(self) -> str:
        """Sender and time."""
        sender = "You" if self.mine else "Bot"
        return f"{sender} · {self.time}{' (edited)' if self.edited else ''}"

    @property
    def is_progress(self) -> bool:
        """Whether it only says which tools run."""
        return not self.mine and self.text.startswith(PROGRESS_MARK)


def screen_on(output: TextIO, keyboard: int) -> "Screen":
    """Return the screen for an output and a keyboard.

    Bubbles are for terminals only, and not for `TERM=dumb`.
    """
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="replace")
    is_terminal = output.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if is_terminal and keyboard >= 0 and os.isatty(keyboard):
        try:
            return TerminalScreen()
        except ImportError:
            output.write("For bubbles and line editing: pip install 'signal-tee-bot[demo]'\n\n")
    return PlainScreen(output, keyboard)


class PlainScreen:
    """A transcript: the text of each message, then its sender and time."""

    def __init__(self, output: TextIO, keyboard: int) -> None:
        self._output = output
        self._keyboard = keyboard

    def show(self, bubble: Bubble) -> None:
        """Print a message."""
        quote = [f"┃ {_first_line(bubble.quote)}"] if bubble.quote else []
        footer = [] if bubble.note else [bubble.footer]
        files = map(_label, bubble.attachments)
        lines = (*quote, clean(bubble.text), *footer, *files, "")
        self._output.write("\n".join(lines) + "\n")
        self._output.flush()

    async def messages(self) -> AsyncIterator[str]:
        """Yield the lines of the input."""
        unread = b""
        while piece := await read_some(self._keyboard):
            *lines, unread = (unread + piece).split(b"\n")
            if len(unread) > MAX_LINE_BYTES:
                lines, unread = [*lines, unread], b""
            for line in lines:
                yield _message(line.decode(errors="replace"))
        yield _message(unread.decode(errors="replace"))


class TerminalScreen:
    """Bubbles that scroll up, and below them the line of input.

    Running tools and the typing sign are shown above that line. An edited message is printed again.

    Raises:
        ImportError: the extra `demo` is not installed.
    """

    def __init__(self) -> None:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra
        from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - as above
        from prompt_toolkit.key_binding.key_processor import KeyPressEvent  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415 - as above

        keys = KeyBindings()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        self._console = Console(force_terminal=True, highlight=False, soft_wrap=False)
        self._session: PromptSession[str] = PromptSession(
            self._prompt, placeholder=INVITATION, key_bindings=keys, erase_when_done=True
        )
        self._typing = False
        self._progress: Bubble | None = None

    def show(self, bubble: Bubble) -> None:
        """Print a bubble; progress stays above the input until the next bubble."""
        if bubble.is_progress:
            self._progress = replace(bubble, edited=False)
        else:
            if self._progress is not None:
                self._print(self._progress)
                self._progress = None
            self._print(bubble)
        self._session.app.invalidate()

    def show_typing(self, typing: bool) -> None:
        """Show above the input whether the bot is writing."""
        self._typing = typing
        self._session.app.invalidate()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Print above the line of input inside the block."""
        from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415 - as above

        with patch_stdout(raw=True):
            yield

    async def messages(self) -> AsyncIterator[str]:
        """Yield what is typed until Ctrl-C or Ctrl-D on an empty line; Ctrl-C clears others."""
        while True:
            try:
                text = await self._session.prompt_async()
            except EOFError:
                return
            except KeyboardInterrupt:
                if self._session.default_buffer.text:
                    continue
                return
            yield _message(text)

    def _prompt(self) -> str:
        status = clean(self._progress.text) if self._progress is not None else ""
        status = status or (TYPING if self._typing else "")
        return f"{status}\n{PROMPT}" if status else PROMPT

    def _print(self, bubble: Bubble) -> None:
        from rich.align import Align  # noqa: PLC0415 - as above
        from rich.panel import Panel  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        if bubble.note:
            self._console.print(Text(bubble.text, style="dim"))
            return
        # Every control character becomes one other character, so the places of styles stay.
        shown = Text(_visible(bubble.text))
        for span in spans_of(bubble.text, bubble.styles):
            shown.stylize(LOOKS[span.style], span.start, span.end)
        if bubble.quote:
            shown = Text.assemble((f"┃ {_first_line(bubble.quote)}\n", "dim"), shown)
        longest = max(line.cell_len for line in shown.split("\n"))
        longest = max(longest + TEXT_FRAME, len(bubble.footer) + FOOTER_FRAME)
        most = max(MIN_BUBBLE_COLUMNS, int(self._console.width * SHARE_OF_THE_WIDTH))
        panel = Panel(
            shown,
            subtitle=Text(bubble.footer),
            subtitle_align="right" if bubble.mine else "left",
            border_style="cyan" if bubble.mine else "green",
            width=min(most, longest),
        )
        self._console.print(Align.right(panel) if bubble.mine else panel)
        for file in bubble.attachments:
            self._console.print(Text(_label(file)))


Screen = PlainScreen | TerminalScreen


def clean(text: str) -> str:
    """Remove from a text what would control the terminal or reverse its direction."""
    return _visible(_BIDI_CONTROLS.sub("", _LINE_ENDS.sub("\n", text)).expandtabs(4))


def _visible(text: str) -> str:
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", text)


def _message(typed: str) -> str:
    return "".join(char for char in typed[:MAX_MESSAGE_CHARACTERS] if char != "\r")


def _first_line(text: str) -> str:
    return clean(text).partition("\n")[0]


def _label(file: Attachment) -> str:
    count = len(file.data)
    size = f"{count} bytes" if count < KILO else f"{count / KILO:.0f} kB"
    size = size if count < MEGA else f"{count / MEGA:.1f} MB"
    return f"\N{PAPERCLIP} {file.name} ({size})"
