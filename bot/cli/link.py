"""`signal-tee-bot link`: make the bot a linked device of a phone's Signal account."""

import asyncio
from argparse import Namespace
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

import segno

from bot.cli.account_setup import UNKNOWN_NUMBER, AccountSetup, open_setup
from bot.cli.console import Console, wrapped
from bot.cli.exit_codes import OK
from bot.config.loading import load_settings
from bot.errors import BotError, SignalError, SignalTimeout, SignalUnavailable
from bot.messaging.registration import Reason, RegistrationRefused
from bot.observability import logs

DEVICE_NAME: Final = "signal-tee-bot"
"""The bot's name in the phone's list of linked devices."""
MAX_CODES: Final = 5

QUIET_MODULES: Final = 4
"""Light modules around the code, as the standard demands."""
MIN_QUIET_MODULES: Final = 2
"""Above and below on a small screen; phones read that, too."""
MIN_BESIDE_COLUMNS: Final = 24
BLACK_ON_WHITE: Final = "\x1b[38;5;16;48;5;231m"
"""Both colours, so that dark and light terminals show the same."""
RESET: Final = "\x1b[0m"
HALF_BLOCKS: Final = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}

BEFORE: Final = """\
This makes the bot a linked device of the Signal account on a phone: it reads what is written to \
that account and answers in its name. Take a phone that has a number for the bot alone; for your \
own account there is ACCESS__NOTE_TO_SELF=true, with which it answers nowhere but in your notes.
"""
HOW_TO_SCAN: Final = """\
On the phone, in Signal: Settings → Linked devices → Link new device. Scan the code below, or \
make a code of this link, on this machine and nowhere else:
"""
TOO_SMALL: Final = """\
This terminal is too small or too old to show the code. Make it larger and run this again, or make \
a code of the link below, on this machine and nowhere else. On the phone, in Signal: Settings → \
Linked devices → Link new device.
"""
WAITING: Final = "Waiting for the phone; Ctrl-C stops."
BESIDE: Final = (
    f"In Signal, on the phone: Settings → Linked devices → Link new device.\n\n{WAITING}"
)


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
            number = await link(setup, console)
        console.say(f"Put this into .env:\n\nSIGNAL__PHONE_NUMBER={number}")
    except asyncio.CancelledError:
        console.say("\nStopped; nothing was linked.")
        raise


async def link(setup: AccountSetup, console: Console) -> str:
    """Show one code after the other until the phone scans one; return its number.

    Raises:
        BotError: none was scanned, or Signal refuses.
    """
    for _ in range(MAX_CODES):
        uri = await setup.start_link(DEVICE_NAME)
        show(uri, console)
        try:
            try:
                number = await setup.finish_link(uri, DEVICE_NAME)
            finally:
                console.say()  # behind the code's last row
        except SignalError as error:
            if not _has_expired(error):
                raise
            console.say("That code has expired.\n")
        else:
            console.say(f"Linked: {number}.")
            return number
    raise BotError("Nobody scanned a code; nothing was linked. Run it again, phone in hand.")


def _has_expired(error: SignalError) -> bool:
    """Whether a new code may help; Signal may just close the connection of an old one."""
    if isinstance(error, RegistrationRefused):
        return error.reason is Reason.LINK_EXPIRED
    return isinstance(error, SignalUnavailable | SignalTimeout)


def show(uri: str, console: Console) -> None:
    """Print a link and, below it, draw it as a code if the screen has room.

    Nothing follows the code, not even the end of its last row: all of a small screen is the code's.
    """
    code = drawn(uri, console.columns, console.rows) if console.can_show("▀▄█→") else []
    console.say(HOW_TO_SCAN if code else TOO_SMALL)
    console.link(uri)
    console.say(f"\n{WAITING}\n")
    console.draw("\n".join(code))


def drawn(uri: str, columns: int, rows: int) -> list[str]:
    """Return the rows of a QR code with its light edge, and what to do beside it.

    Args:
        uri: what the code says.
        columns: of the screen.
        rows: of the screen.

    Returns:
        As many rows as fit; none if the code does not.
    """
    code = segno.make(uri, error="l", boost_error=False, micro=False)
    dark = [list(row) for row in code.matrix_iter(border=0)]
    room = 2 * rows - len(dark)  # each row of the screen holds two rows of modules
    width = len(dark) + 2 * QUIET_MODULES
    if room < 2 * MIN_QUIET_MODULES or width > columns:
        return []
    above = min(QUIET_MODULES, (room + 1) // 2)
    below = min(QUIET_MODULES, room - above)
    side, light = [0] * QUIET_MODULES, [0] * width
    modules = [light] * above + [[*side, *row, *side] for row in dark] + [light] * below
    shown = [
        "".join(HALF_BLOCKS[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip_longest(modules[::2], modules[1::2], fillvalue=light)
    ]
    return list(_with_text(shown, columns - width - 2))


def _with_text(code: list[str], columns: int) -> Iterator[str]:
    """Yield the rows of a code, beside them what to do if there is room for it."""
    text = wrapped(BESIDE, columns).split("\n") if columns >= MIN_BESIDE_COLUMNS else []
    for row, line in zip_longest(code, ["", *text][: len(code)], fillvalue=""):
        yield f"{BLACK_ON_WHITE}{row}{RESET}  {line}".rstrip(" ")
