"""`signal-tee-bot link`: make the bot a linked device of a phone's Signal account."""

import asyncio
import shutil
from argparse import Namespace
from collections.abc import Iterator
from io import StringIO
from itertools import zip_longest
from typing import Final

import segno

from bot.cli.account_setup import PUT_NUMBER, UNKNOWN_NUMBER, open_setup
from bot.cli.console import Console, wrapped
from bot.config.loading import load_settings
from bot.errors import BotError
from bot.observability import logs
from bot.signal.errors import SignalError, SignalRateLimited, SignalTimeout, SignalUnavailable
from bot.signal.registration import AccountSetup, Reason, RegistrationRefused

DEVICE_NAME: Final = "signal-tee-bot"
"""The bot's name in the phone's list of linked devices."""
MAX_CODES: Final = 5

QUIET_MODULES: Final = (4, 3, 2)
"""Light modules around the code: the standard demands four; phones read two as well."""
MIN_BESIDE_COLUMNS: Final = 24
WHITE_ON_BLACK: Final = "\x1b[38;5;231;48;5;16m"
"""Both colours, so that dark and light terminals show the same: light modules are drawn."""
RESET: Final = "\x1b[0m"

BEFORE: Final = """\
This makes the bot a linked device of the Signal account on a phone: it reads what is written to \
that account and answers in its name. Use a phone whose number is for the bot alone. For your own \
account, set ACCESS__NOTE_TO_SELF=true: then the bot answers only in your Note to Self.
"""
HOW_TO_SCAN: Final = """\
On the phone, in Signal: Settings → Linked devices → Link new device. Scan the code below, or \
turn this link into a QR code, on this machine and nowhere else:
"""
TOO_SMALL: Final = """\
This terminal is too small or too old to show the code. Make it larger and run this again, or turn \
the link below into a QR code, on this machine and nowhere else. On the phone, in Signal: \
Settings → Linked devices → Link new device.
"""
WAITING: Final = "Waiting for the phone; Ctrl-C stops."
BESIDE: Final = (
    f"In Signal, on the phone: Settings → Linked devices → Link new device.\n\n{WAITING}"
)


def run(_: Namespace) -> None:
    """Link the account."""
    logs.configure(level="error", log_format="console")  # the console says what happens
    asyncio.run(run_link())


async def run_link() -> None:
    """Link the bot to an account with the signal-cli of the settings."""
    console = Console()
    settings = load_settings({"signal": {"phone_number": UNKNOWN_NUMBER}})
    try:
        console.say(BEFORE)
        async with open_setup(settings, console) as setup:
            number = await link(setup, console)
        console.say(PUT_NUMBER.format(number=number))
    except asyncio.CancelledError:
        console.say("\nStopped; nothing was linked.")
        raise


async def link(setup: AccountSetup, console: Console) -> str:
    """Show one code after the other until the phone scans one; return its number."""
    for _ in range(MAX_CODES):
        uri = await setup.start_link(DEVICE_NAME)
        show(uri, console)
        try:
            try:
                number = await setup.finish_link(uri, DEVICE_NAME)
            finally:
                console.say()  # after the code's last row
        except SignalError as error:
            if not _has_expired(error):
                raise
            console.say("That code has expired.\n")
        else:
            console.say(f"Linked: {number}.")
            return number
    raise BotError("Nobody scanned a code; nothing was linked. Run it again, phone in hand.")


def _has_expired(error: SignalError) -> bool:
    """Return whether a new code may help; Signal may just close the connection of an old one."""
    if isinstance(error, RegistrationRefused):
        return error.reason is Reason.LINK_EXPIRED
    if isinstance(error, SignalRateLimited):
        return False
    return isinstance(error, SignalUnavailable | SignalTimeout)


def show(uri: str, console: Console) -> None:
    """Print a link and, below it, draw it as a code if the screen has room.

    Nothing follows the code, not even the end of its last row: all of a small screen is the code's.
    """
    columns, rows = shutil.get_terminal_size()
    code = drawn(uri, columns, rows) if console.can_show("▀▄█→") else []
    console.say(HOW_TO_SCAN if code else TOO_SMALL)
    console.link(uri)
    console.say(f"\n{WAITING}\n")
    console.draw("\n".join(code))


def drawn(uri: str, columns: int, rows: int) -> list[str]:
    """Return a QR code with its light edge, and the instructions next to it.

    Returns:
        the rows on the screen, each of two rows of modules; none if the code does not fit.
    """
    code = segno.make(uri, error="l", boost_error=False, micro=False)
    size = int(code.symbol_size(border=0)[0])
    for border in QUIET_MODULES:
        width = size + 2 * border
        if width <= min(columns, 2 * rows):
            shown = StringIO()
            code.terminal(shown, border=border, compact=True)
            return list(_with_text(shown.getvalue().splitlines(), columns - width - 2))
    return []


def _with_text(code: list[str], columns: int) -> Iterator[str]:
    """Yield the rows of a code, with the instructions next to them if they fit."""
    text = wrapped(BESIDE, columns).split("\n") if columns >= MIN_BESIDE_COLUMNS else []
    for row, line in zip_longest(code, ["", *text][: len(code)], fillvalue=""):
        yield f"{WHITE_ON_BLACK}{row}{RESET}  {line}".rstrip(" ")
