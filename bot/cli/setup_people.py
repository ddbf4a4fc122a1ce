"""The last step of `setup`: whoever writes first becomes the admin, if the terminal agrees."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from bot.cli.choices import agrees
from bot.cli.console import Console
from bot.cli.pair import who_is
from bot.cli.setup_draft import Draft
from bot.errors import BotError
from bot.wiring.parts import store_key
from conversation_store.errors import StoreError
from conversation_store.models import PairingRequest
from conversation_store.pairings import PairingBook, open_pairing_book

LOOK_SECONDS: Final = 0.5
STOP_SECONDS: Final = 20.0
LAST_LINES: Final = 5

WRITE: Final = """
The bot runs. Write anything to {number} from your own phone. The bot answers with a code, which \
need not be typed: this terminal knows it.
"""
WRITE_TO_YOURSELF: Final = """
The bot runs. Write something into your Note to Self on the phone: it answers there.
"""
ADMIN_ALREADY: Final = "\nThe bot runs. {who} is the admin already."
DONE: Final = "Now ask it something. Press Enter here when you are done: the bot stops then."


async def meet_the_first(console: Console, draft: Draft) -> None:
    """Run the bot, make an admin of whoever writes and is meant, and let them talk.

    Raises:
        BotError: the bot ends by itself; the text has its last lines.
    """
    settings = draft.settings()
    async with _running_bot() as ended:
        if settings.access.note_to_self:
            console.say(WRITE_TO_YOURSELF)
        elif settings.access.policy == "pairing":
            await _while_it_runs(ended, _admit(console, draft))
        await _while_it_runs(ended, console.ask(DONE))


async def _admit(console: Console, draft: Draft) -> None:
    """Ask about one person after the other who writes, until one is to be the admin."""
    settings = draft.settings()
    key = await store_key(settings)
    refused: set[str] = set()
    with suppress(StoreError), open_pairing_book(settings.store.path, key) as book:
        admin = next((person for person in book.people() if person.admin), None)
        if admin is not None:
            console.say(ADMIN_ALREADY.format(who=who_is(admin)))
            return
    console.say(WRITE.format(number=settings.signal.phone_number))
    while True:
        with suppress(StoreError), open_pairing_book(settings.store.path, key) as book:
            for request in book.waiting():
                if request.code in refused:
                    continue
                if await agrees(console, f"{who_is(request)} has written. Is that the admin?"):
                    _approve(book, request)
                    return
                refused.add(request.code)
        await asyncio.sleep(LOOK_SECONDS)


def _approve(book: PairingBook, request: PairingRequest) -> None:
    if book.approve(request.code, admin=True) is None:
        raise BotError("That code has expired. Write again, and run signal-tee-bot setup again.")


@asynccontextmanager
async def _running_bot() -> AsyncIterator[asyncio.Task[None]]:
    """Run the daemon; yield what fails when it ends by itself, with what it said last."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "bot.process.parent_death", str(os.getpid())),
        *(sys.executable, "-m", "bot", "run"),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env={**os.environ, "LOG__FORMAT": "console", "NO_COLOR": "1"},
        start_new_session=True,  # Ctrl-C is for this program, which then stops it
    )  # fmt: skip
    ended = asyncio.create_task(_end_of(process.stderr))
    try:
        yield ended
    finally:
        ended.cancel()
        await _stop(process)


async def _end_of(output: asyncio.StreamReader | None) -> None:
    lines: deque[str] = deque(maxlen=LAST_LINES)
    if output is not None:
        async for line in output:
            lines.append(line.decode(errors="replace").rstrip())
    raise BotError("\n".join(("The bot has ended by itself. It said:", *lines)))


async def _stop(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _while_it_runs(ended: asyncio.Task[None], work: Coroutine[Any, Any, object]) -> None:
    """Do work while the bot runs.

    Raises:
        BotError: the bot has ended.
    """
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({working, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await ended
        await working
    finally:
        working.cancel()
