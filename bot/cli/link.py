"""`signal-tee-bot link`: make the bot a linked device of a phone's Signal account."""

import asyncio
from argparse import Namespace
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

import segno

from bot.cli.account_setup import AccountSetup, open_setup
from bot.cli.console import Console
from bot.cli.exit_codes import OK
from bot.config.loading import load_settings
from bot.errors import BotError, SignalError, SignalTimeout, SignalUnavailable
from bot.messaging.registration import Reason, RegistrationRefused
from bot.observability import logs

DEVICE_NAME: Final = "signal-tee-bot"
"""The bot's name in the phone's list of linked devices."""
UNKNOWN_NUMBER: Final = "+9999999"
"""In place of the setting, which is known only after linking; nobody has this number."""
MAX_CODES: Final = 5

QUIET_MODULES: Final = 2
"""Light modules around the code. The standard demands four; with two the code fits 24 rows, and
phones read it."""
BLACK_ON_WHITE: Final = "\x1b[38;5;16;48;5;231m"
"""Both colours, so that dark and light terminals show the same."""
RESET: Final = "\x1b[0m"
HALF_BLOCKS: Final = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}

BEFORE: Final = """\
This makes the bot a linked device of the Signal account on a phone: it reads what is written to
that account and answers in its name. Take a phone that has a number for the bot alone; for your
own account there is ACCESS__NOTE_TO_SELF=true, with which it answers nowhere but in your notes.
"""
HOW_TO_SCAN: Final = """\
On the phone, in Signal: Settings → Linked devices → Link new device. Scan the code above, or
make a code of this link, on this machine and nowhere else:
"""


def run(_: Namespace) -> int:
    """Link the account; return the exit code."""
    logs.configure(level="error", log_format="console")  # the console says what happens
    asyncio.run(run_link())
    return OK


async def run_link(console: Console | None = None) -> None:
    """Link the bot to an account with the signal-cli of the settings.

    Raises:
        BotError: it was not linked; the text says why.
    """
    console = console or Console()
    settings = load_settings({"signal": {"phone_number": UNKNOWN_NUMBER}})
    try:
        console.say(BEFORE)
        async with open_setup(settings, console) as setup:
            await link(setup, console)
    except asyncio.CancelledError:
        console.say("\nStopped; nothing was linked.")
        raise


async def link(setup: AccountSetup, console: Console) -> None:
    """Show one code after the other until the phone scans one.

    Raises:
        BotError: none was scanned, or Signal refuses.
    """
    for _ in range(MAX_CODES):
        uri = await setup.start_link(DEVICE_NAME)
        show(uri, console)
        try:
            number = await setup.finish_link(uri, DEVICE_NAME)
        except SignalError as error:
            if not _has_expired(error):
                raise
            console.say("That code has expired.\n")
        else:
            console.say(f"Linked: {number}. Put this into .env:\n\nSIGNAL__PHONE_NUMBER={number}")
            return
    raise BotError("Nobody scanned a code; nothing was linked. Run it again, phone in hand.")


def _has_expired(error: SignalError) -> bool:
    """Whether a new code may help; Signal may just close the connection of an old one."""
    if isinstance(error, RegistrationRefused):
        return error.reason is Reason.LINK_EXPIRED
    return isinstance(error, SignalUnavailable | SignalTimeout)


def show(uri: str, console: Console) -> None:
    """Draw a link as a code if the screen has room, and print it below."""
    rows = list(drawn(uri))
    if console.columns >= len(rows[0]) and console.can_show("▀▄█"):
        console.say("\n".join(f"{BLACK_ON_WHITE}{row}{RESET}" for row in rows))
    else:
        console.say("(This terminal is too narrow or too old to show the code.)")
    console.say(HOW_TO_SCAN)
    console.say(f"{uri}\n\nWaiting for the phone; Ctrl-C stops.")


def drawn(uri: str) -> Iterator[str]:
    """Yield the rows of a QR code; each holds two rows of modules."""
    code = segno.make(uri, error="l", boost_error=False, micro=False)
    modules = [list(row) for row in code.matrix_iter(border=QUIET_MODULES)]
    light = [0] * len(modules[0])
    for upper, lower in zip_longest(modules[::2], modules[1::2], fillvalue=light):
        yield "".join(HALF_BLOCKS[pair] for pair in zip(upper, lower, strict=True))
