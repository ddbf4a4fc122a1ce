"""`signal-tee-bot register`: give the bot's own number a Signal account."""

import asyncio
import os
import re
from argparse import Namespace
from typing import Final

from bot.chat.registration_lock import kept_pin
from bot.cli.account_setup import PUT_NUMBER, open_setup
from bot.cli.console import Console
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.errors import BotError
from bot.observability import logs
from bot.signal.errors import SignalError
from bot.signal.registration import AccountSetup, Reason, RegistrationRefused
from bot.store import store_key
from conversation_store.connections import StoreError

MAX_TRIES: Final = 3

BEFORE: Final = """\
This registers {number} with Signal for the bot. A phone that has Signal with that number now will \
be logged out of it once you enter the code.
"""
CAPTCHA: Final = """\
{reason} On any computer in the same network as this one:
  1. open https://signalcaptchas.org/registration/generate.html and solve it;
  2. copy the link of "Open Signal" (right click, copy link; it begins with signalcaptcha://).
"""
PRESENT: Final = "The account is there already."
DONE: Final = """\
Registered: {number}. Keep a copy of signal-cli's folder in a safe place: without it the account \
is gone. See docs/SIGNAL.md."""


def run(arguments: Namespace) -> None:
    """Register the account."""
    logs.configure(level="error", log_format="console")  # the console says what happens
    asyncio.run(run_register(arguments))


async def run_register(arguments: Namespace) -> None:
    """Register the bot's number with the signal-cli of the settings.

    Without a number, ask for it. An unattended run, which begins together with signal-cli, takes it
    from the settings, waits until signal-cli listens, and does nothing if the account exists.
    """
    console, unattended = Console(), arguments.unattended
    number = " ".join(arguments.number)
    # Compose sets missing variables to empty texts.
    captcha = arguments.captcha or os.environ.get("SIGNAL_CAPTCHA") or None
    code = arguments.code or os.environ.get("SIGNAL_CODE") or None
    try:
        if not number and not unattended:
            number = await console.ask("The bot's number, such as +4915112345678:")
        settings = load_settings({"signal": {"phone_number": number}} if number else {})
        number = settings.signal.phone_number
        async with open_setup(settings, console, wait=unattended) as setup:
            if unattended and await _has_account(setup, number):
                console.say(PRESENT)
                return
            await register(
                setup,
                console,
                number,
                voice=arguments.voice,
                captcha=captcha,
                code=code,
                pin=await _own_pin(settings),
            )
            console.say(PUT_NUMBER.format(number=number))
    except asyncio.CancelledError:
        console.say("\nStopped; the number is not registered.")
        raise


async def register(
    setup: AccountSetup,
    console: Console,
    number: str,
    *,
    voice: bool = False,
    captcha: str | None = None,
    code: str | None = None,
    pin: str | None = None,
) -> None:
    """Register a number with captcha, code and PIN, as far as Signal demands them.

    Args:
        code: from an earlier run; then Signal is not asked for another one.
        pin: of the lock that the bot has set itself.
    """
    if await _has_account(setup, number):
        raise RegistrationRefused(Reason.ALREADY_HERE)
    is_listed = number in await setup.accounts()
    if is_listed:
        console.say(Reason.DROPPED)
    console.say(BEFORE.format(number=number))
    if code is None:
        await _have_a_code_sent(
            setup, console, number, voice=voice, captcha=captcha, anew=is_listed
        )
    if not await _has_account(setup, number):  # Signal may know the machine and need no code
        await _enter_the_code(setup, console, number, code, pin)
    console.say(DONE.format(number=number))


async def _own_pin(settings: Settings) -> str | None:
    """Return the PIN of the bot's own registration lock, if the store can be read and has one."""
    try:
        return kept_pin(settings.store.path, await store_key(settings))
    except (BotError, StoreError):
        return None


async def _has_account(setup: AccountSetup, number: str) -> bool:
    """Return whether signal-cli has the account, and Signal has not said that it dropped it."""
    if number not in await setup.accounts():
        return False
    try:
        await setup.ask_as(number)
    except SignalError as error:
        return not (isinstance(error, RegistrationRefused) and error.reason is Reason.DROPPED)
    return True


async def _have_a_code_sent(
    setup: AccountSetup,
    console: Console,
    number: str,
    *,
    voice: bool,
    captcha: str | None,
    anew: bool,
) -> None:
    for _ in range(MAX_TRIES):
        try:
            await setup.register(number, captcha=captcha, voice=voice, anew=anew)
        except RegistrationRefused as refused:
            if refused.reason not in {Reason.CAPTCHA_NEEDED, Reason.CAPTCHA_REJECTED}:
                raise
            console.say(CAPTCHA.format(reason=refused.reason))
            captcha = await console.ask("Paste the link here:")
        else:
            console.say(f"Signal {'calls' if voice else 'sends an SMS to'} {number} with a code.")
            return
    raise BotError(f"{Reason.CAPTCHA_REJECTED} Three were enough for now; try again later.")


async def _enter_the_code(
    setup: AccountSetup, console: Console, number: str, code: str | None, pin: str | None
) -> None:
    for _ in range(MAX_TRIES):
        digits = re.sub(r"\D", "", code or await console.ask("The code:"))
        code = None
        if not digits:
            console.say("The code has only digits. Please try again.")
            continue
        try:
            await setup.verify(number, digits, pin=pin)
        except RegistrationRefused as refused:
            if refused.reason in {Reason.PIN_NEEDED, Reason.PIN_REJECTED}:
                await _enter_the_pin(setup, console, number, digits, refused.remaining)
                return
            if refused.reason is not Reason.REFUSED:
                raise
            console.say("Signal did not take that code.")
        else:
            return
    raise BotError("Three codes were wrong. Register again for a new one, after a while.")


async def _enter_the_pin(
    setup: AccountSetup, console: Console, number: str, code: str, hours: int | None
) -> None:
    until = f" It ends in {hours} hours if the number is not used until then." if hours else ""
    console.say(f"{Reason.PIN_NEEDED}{until} Enter the PIN that its last owner set.")
    for _ in range(MAX_TRIES):
        while not (pin := await console.ask("The PIN:", secret=True)):
            pass  # an empty one would count as a try
        try:
            await setup.verify(number, code, pin=pin)
        except RegistrationRefused as refused:
            if refused.reason not in {Reason.PIN_REJECTED, Reason.PIN_NEEDED}:
                raise
            wrong = refused.reason is Reason.PIN_REJECTED
            left = f" {refused.remaining} tries are left." if wrong and refused.remaining else ""
            console.say(f"{Reason.PIN_REJECTED}{left}")
        else:
            return
    raise BotError(
        "Three PINs were wrong. Find out the right one: Signal locks the number after too many."
    )
