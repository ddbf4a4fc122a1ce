"""The Signal account that `setup` asks for: one that is there, a new one, or a phone's."""

import asyncio
import re
import shutil
from typing import Final

from bot.cli.account_setup import AccountSetup, open_setup
from bot.cli.choices import agrees, choose
from bot.cli.console import Console
from bot.cli.link import link
from bot.cli.register import register
from bot.cli.setup_draft import Draft
from bot.config.settings import Settings
from bot.config.values import phone_number
from bot.errors import BotError, SettingsError, SignalError
from bot.messaging.messenger import NOT_REGISTERED
from bot.messaging.spawned import PROGRAM

STATUS_SECONDS: Final = 20.0

NO_SIGNAL_CLI: Final = f"""
The bot needs {PROGRAM}, which speaks to Signal, and there is none on the PATH. Download the \
newest release from https://github.com/AsamK/signal-cli/releases (the native build is one file) \
and put it on the PATH, such as into /usr/local/bin. Or name one that runs elsewhere, as \
SIGNAL__URL has it: unix:/path/to/socket, tcp://host:port or http://host:port.
"""
MIN_VERSIONS: Final = {"signal-cli": (0, 13), "signal-cli-rest-api": (0, 101)}
"""What this program was tried with at least; Signal itself refuses what is some months old."""

WHICH: Final = "\nWhich number is the bot's?"
ITS_OWN: Final = "A number of its own, which receives one SMS or call now"
OF_A_PHONE: Final = "The number of a spare phone that has Signal already (scan a code)"
MINE: Final = "My own: it answers in my Note to Self, and nowhere else (scan a code)"


async def ask_for_signal_cli(console: Console, draft: Draft) -> None:
    """Find signal-cli, on this machine or at an address.

    Raises:
        BotError: the input has ended.
    """
    if draft["SIGNAL__URL"] not in {"", "spawn:"}:
        return
    while shutil.which(PROGRAM) is None:
        console.say(NO_SIGNAL_CLI)
        url = await console.ask("Its address, or Enter once it is on the PATH:")
        if not url:
            continue
        try:
            draft.settings(SIGNAL__URL=url)
        except SettingsError as error:
            console.say("\n".join(error.problems))
        else:
            draft.keep(SIGNAL__URL=url)
            return
    draft.keep(SIGNAL__URL="spawn:")


async def ask_for_account(console: Console, draft: Draft) -> None:
    """Take an account that signal-cli has, or make one, until there is one.

    Raises:
        BotError: there is no signal-cli, or the input has ended.
    """
    settings = draft.settings()
    async with open_setup(settings, console) as setup:
        await _greet(console, setup, settings)
        for number in sorted(await setup.accounts()):
            if await agrees(console, f"signal-cli has the account {number}. Is it the bot's?"):
                draft.keep(SIGNAL__PHONE_NUMBER=number)
                return
        while True:
            try:
                draft.keep(**await _new_account(console, setup))
            except (SignalError, ValueError) as error:
                console.say(f"That did not work: {error}")
            else:
                return


async def _greet(console: Console, setup: AccountSetup, settings: Settings) -> None:
    """Say which version answers.

    Raises:
        BotError: it is too old.
    """
    over_http = settings.signal.url.startswith("http")
    program = "signal-cli-rest-api" if over_http else PROGRAM
    version = await setup.version()
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found < MIN_VERSIONS[program]:
        raise BotError(
            f"{program} {version} is too old: at least"
            f" {'.'.join(map(str, MIN_VERSIONS[program]))} is needed. Install the newest release."
        )
    console.say(f"{program} {version} answers.")


async def _new_account(console: Console, setup: AccountSetup) -> dict[str, str]:
    match await choose(console, WHICH, [ITS_OWN, OF_A_PHONE, MINE]):
        case 0:
            number = phone_number(await console.ask("The number, such as +49 1511 2345678:"))
            await register(setup, console, number, voice=False, captcha=None)
            return {"SIGNAL__PHONE_NUMBER": number}
        case 1:
            return {"SIGNAL__PHONE_NUMBER": await link(setup, console)}
        case _:
            number = await link(setup, console)
            return {"SIGNAL__PHONE_NUMBER": number, "ACCESS__NOTE_TO_SELF": "true"}


async def try_account(console: Console, draft: Draft) -> None:
    """Ask signal-cli for its version and for the account.

    Raises:
        BotError: it does not answer, or does not have the account.
    """
    settings = draft.settings()
    async with open_setup(settings, console) as setup:
        await _greet(console, setup, settings)
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                registered = settings.signal.phone_number in await setup.accounts()
        except TimeoutError:
            raise BotError("SIGNAL__URL: signal-cli does not answer in time.") from None
    if not registered:
        raise BotError(NOT_REGISTERED)
    console.say(f"Signal: {settings.signal.phone_number} is registered.")
