"""The terminal phone: shows the chat with the bot, and sends what a person types."""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from bot.demo.messenger import DemoMessenger, FromBot
from bot.demo.screen import PROGRESS_MARK, Bubble, Screen, TerminalScreen, screen_on

ANSWER_SECONDS: Final = 300.0
"""Longer than the bot tries to reach a model, so that people see its apology."""

FURTHER_PARTS_SECONDS: Final = 0.3
WATCH_SECONDS: Final = 60.0
QUIT: Final = "/quit"
HELP: Final = "/help"
ATTACH: Final = "/attach"
HELP_TEXT: Final = """\
Enter sends, Alt-Enter begins a new line; lines that are pasted are one message.
Up and down bring back what was sent; Ctrl-C clears the line; /quit or Ctrl-D ends.
/attach FILE sends a file; words may follow it.
!help asks the bot what it can do."""
UNKNOWN: Final = "There is no {word} here; /help lists what there is."
WHICH_FILE: Final = "Name a file: /attach FILE, in quotation marks if its name has spaces."
NO_FILE: Final = "There is no file {file} that can be read."
_COMMAND: Final = re.compile(r"/[a-z]+")


async def run_phone(
    chat: DemoMessenger,
    *,
    say: Sequence[str],
    keyboard: int,
    output: TextIO,
    errors: TextIO,
    answer_seconds: float = ANSWER_SECONDS,
) -> int:
    """Run the phone until the input ends, and return the exit code.

    At a terminal, a person and the bot write at any time. Otherwise each message waits for the
    answer to the one before.
    """
    screen = screen_on(output, -1 if say else keyboard)
    phone = Phone(chat, screen)
    if isinstance(screen, TerminalScreen):
        chat.on_typing = screen.show_typing
        await _talk(phone, screen)
        return 0
    try:
        async for typed in _each(say) if say else _typed(screen):
            written = phone.read(typed)
            if written is not None and not await phone.ask(written, answer_seconds):
                errors.write(f"No answer came within {answer_seconds:g} seconds.\n")
                return 1
    except BrokenPipeError:
        _discard_the_rest(output)
        return 1
    return 0


def _discard_the_rest(output: TextIO) -> None:
    """Redirect the output after its reader went away (`| head -1`), so the last flush succeeds."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)


async def _talk(phone: "Phone", screen: TerminalScreen) -> None:
    with screen.opened():
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(phone.watch())
            async for typed in _typed(screen):
                if (written := phone.read(typed)) is not None:
                    await phone.say(written)
            watching.cancel()


async def _typed(screen: Screen) -> AsyncIterator[str]:
    async for text in screen.messages():
        if text.strip() == QUIT:
            return
        if text.strip():
            yield text


async def _each(texts: Sequence[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


@dataclass(frozen=True, slots=True)
class Written:
    """A message of the person, perhaps with a file."""

    text: str
    file: Path | None = None


@dataclass
class Phone:
    """Phone with a single chat, with the bot."""

    chat: DemoMessenger
    screen: Screen

    def read(self, typed: str) -> Written | None:
        """Return the message that was typed; None after a command of the phone's own."""
        word, _, rest = typed.strip().partition(" ")
        if word == HELP:
            self._note(HELP_TEXT)
        elif word == ATTACH:
            return self._with_file(rest)
        elif _COMMAND.fullmatch(word):
            self._note(UNKNOWN.format(word=word))
        else:
            return Written(typed)
        return None

    def _with_file(self, named: str) -> Written | None:
        try:
            name, *words = shlex.split(named)
        except ValueError:  # no name, or a quotation mark is missing
            self._note(WHICH_FILE)
            return None
        file = Path(name).expanduser()
        if not file.is_file() or not os.access(file, os.R_OK):
            self._note(NO_FILE.format(file=file))
            return None
        return Written(" ".join(words), file)

    def _note(self, text: str) -> None:
        self.screen.show(Bubble(text, note=True))

    async def say(self, written: Written) -> None:
        """Send a message and show it."""
        text = written.text.encode(errors="replace").decode()
        timestamp = await self.chat.say(text, written.file)
        label = f"\N{PAPERCLIP} {written.file.name}" if written.file is not None else ""
        shown = "\n".join(filter(None, (text, label)))
        self.screen.show(Bubble(shown, mine=True, time=_local_time(timestamp)))

    async def ask(self, written: Written, seconds: float) -> bool:
        """Send a message, show the reply, and return whether an answer came in time.

        The answer is the first message that shows no progress, a new one or an edit of an earlier
        answer. A long answer comes in parts, one right after the other.
        """
        await self.say(written)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while (await self._receive(_seconds_until(deadline))).text.startswith(PROGRESS_MARK):
                pass
        except TimeoutError:
            return False
        with suppress(TimeoutError):
            while True:
                await self._receive(min(FURTHER_PARTS_SECONDS, _seconds_until(deadline)))
        return True

    async def watch(self) -> None:
        """Show the bot's messages until cancelled."""
        while True:
            with suppress(TimeoutError):
                await self._receive(WATCH_SECONDS)

    async def _receive(self, seconds: float) -> FromBot:
        sent = await self.chat.next_sent(seconds=seconds)
        self.chat.on_typing(False)  # as phones do with every message
        self.screen.show(
            Bubble(
                sent.text,
                time=_local_time(sent.timestamp),
                edited=sent.replaces is not None,
                attachments=sent.attachments,
                styles=sent.styles,
                quote="" if sent.quote is None else sent.quote.text,
            )
        )
        return sent


def _seconds_until(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())


def _local_time(timestamp: int) -> str:
    return f"{datetime.fromtimestamp(timestamp / 1000, UTC).astimezone():%H:%M}"
