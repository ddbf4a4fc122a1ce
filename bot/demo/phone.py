"""The terminal phone: shows what a phone would and sends what is typed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Final, Protocol, TextIO

from bot.demo.bubbles import Bubble
from bot.demo.keyboard import Line, key_by_key, typed_messages
from bot.demo.messenger import FromBot
from bot.demo.screen import PlainScreen, Screen, screen_on

# Longer than the bot keeps trying to reach a model, so that its apology is seen.
ANSWER_SECONDS: Final = 300.0
FURTHER_PARTS_SECONDS: Final = 0.3
WATCH_SECONDS: Final = 60.0
PROGRESS_MARK: Final = "🔧 "
QUIT: Final = "/quit"
HELP: Final = "/help"
HELP_TEXT: Final = """\
Enter sends, Alt-Enter begins a new line; lines that are pasted are one message.
Cursor keys, Home, End and Ctrl with left or right move; up and down bring back what was sent.
Ctrl-W deletes a word, Ctrl-U to the start, Ctrl-K to the end; /quit or Ctrl-D ends.
!help asks the bot what it can do."""


class ChatWithBot(Protocol):
    """Both directions of the chat: `DemoMessenger`, and scripts in tests."""

    on_typing: Callable[[bool], None]

    async def say(self, text: str) -> int:
        """Write to the bot and return the message's timestamp."""
        ...

    async def next_sent(self, *, seconds: float) -> FromBot:
        """Return the next message of the bot; TimeoutError when none comes in time."""
        ...


async def run_phone(
    chat: ChatWithBot,
    *,
    say: Sequence[str],
    keyboard: int,
    output: TextIO,
    errors: TextIO,
    answer_seconds: float = ANSWER_SECONDS,
) -> int:
    """Be the phone until there is nothing more to say, and return the exit code.

    With texts to `say`, or when the keyboard is no terminal, each message waits for the answer to
    the one before; otherwise a person types and both sides talk freely.
    """
    screen = screen_on(output)
    phone = Phone(chat, screen)
    if not say and os.isatty(keyboard):
        chat.on_typing = screen.show_typing
        await _talk(phone, screen, keyboard)
        return 0
    try:
        async for text in _each(say) if say else _typed_messages(keyboard):
            if text.strip() == HELP:
                phone.help()
            elif not await phone.ask(text, answer_seconds):
                errors.write(f"No answer came within {answer_seconds:g} seconds.\n")
                return 1
    except BrokenPipeError:
        _discard_the_rest(output)
        return 1
    return 0


def _discard_the_rest(output: TextIO) -> None:
    """Let the last flush at exit succeed after the reader went away (`... | head -1`)."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)


async def _talk(phone: "Phone", screen: Screen, keyboard: int) -> None:
    """Let a person and the bot write at any time."""
    loop = asyncio.get_running_loop()
    with nullcontext() if isinstance(screen, PlainScreen) else key_by_key(keyboard):
        screen.show_input(Line())
        loop.add_signal_handler(signal.SIGWINCH, screen.redraw)
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(phone.watch())
                async for text in _typed_messages(keyboard, on_change=screen.show_input):
                    if text.strip() == HELP:
                        phone.help()
                    else:
                        await phone.say(text)
                watching.cancel()
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            screen.show_input(None)


async def _typed_messages(
    keyboard: int, on_change: Callable[[Line], None] | None = None
) -> AsyncIterator[str]:
    async for text in typed_messages(keyboard, on_change):
        if text.strip() == QUIT:
            return
        if text.strip():
            yield text


async def _each(texts: Sequence[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


class Phone:
    """One person's phone with one chat: the one with the bot."""

    def __init__(self, chat: ChatWithBot, screen: Screen) -> None:
        self._chat = chat
        self._screen = screen

    async def say(self, text: str) -> None:
        """Send a message and show it."""
        text = text.encode(errors="replace").decode()
        timestamp = await self._chat.say(text)
        self._screen.show(Bubble(timestamp, mine=True, text=text, time=_local_time(timestamp)))

    def help(self) -> None:
        """Show what can be done here."""
        self._screen.show(Bubble(0, mine=True, text=HELP_TEXT, time="", note=True))

    async def ask(self, text: str, seconds: float) -> bool:
        """Send a message, show what comes back, and return whether an answer came in time.

        The answer is the first message that shows no progress, be it a new one or an edit of an
        earlier answer; a long one comes in parts, one right after the other.
        """
        await self.say(text)
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while not _is_answer(await self._receive(_seconds_until(deadline))):
                pass
        except TimeoutError:
            return False
        with suppress(TimeoutError):
            while True:
                await self._receive(min(FURTHER_PARTS_SECONDS, _seconds_until(deadline)))
        return True

    async def watch(self) -> None:
        """Show what the bot sends, until cancelled."""
        while True:
            with suppress(TimeoutError):
                await self._receive(WATCH_SECONDS)

    async def _receive(self, seconds: float) -> FromBot:
        sent = await self._chat.next_sent(seconds=seconds)
        self._screen.show_typing(False)  # as phones do with every message
        bubble = Bubble(
            sent.timestamp,
            mine=False,
            text=sent.text,
            time=_local_time(sent.timestamp),
            attachments=sent.attachments,
            styles=sent.styles,
            quote="" if sent.quote is None else sent.quote.text,
        )
        if sent.replaces is None:
            self._screen.show(bubble)
        else:
            self._screen.edit(sent.replaces, bubble)
        return sent


def _is_answer(sent: FromBot) -> bool:
    return not sent.text.startswith(PROGRESS_MARK)


def _seconds_until(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())


def _local_time(timestamp: int) -> str:
    return f"{datetime.fromtimestamp(timestamp / 1000, UTC).astimezone():%H:%M}"
