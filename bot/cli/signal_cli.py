"""`signal-tee-bot signal-cli`: install and update the bot's own signal-cli, and show the PIN.

`update` also works while the bot runs: it ends the running signal-cli, and the bot starts the new
one. If the new one does not answer, the command goes back to the previous version.
"""

import asyncio
import platform
from argparse import Namespace
from collections.abc import Sequence
from typing import Final

from bot.chat.registration_lock import kept_pin
from bot.cli.account_setup import UNKNOWN_NUMBER, signal_cli_at
from bot.cli.console import Console
from bot.cli.store_errors import explained
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.errors import BotError
from bot.observability import logs
from bot.signal.errors import SignalError
from bot.signal.installation import (
    DOWNLOADS,
    choose,
    chosen_in,
    home_of,
    install,
    is_installed,
    java_version,
    remove_others,
)
from bot.signal.registration import DaemonSetup
from bot.signal.releases import RELEASES, Release, newest_for
from bot.signal.spawned import START_SECONDS, end_listener, listener, socket_path
from bot.store import store_key

STOP_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.1
UP_SECONDS: Final = 2 * START_SECONDS
"""For a new version to answer: the bot waits some seconds before it starts signal-cli again."""
ANSWER_SECONDS: Final = 5.0
MEGABYTE: Final = 10**6

NOT_SPAWNED: Final = (
    "The bot will not use this signal-cli, because SIGNAL__URL names one that runs elsewhere. To"
    " use it, set SIGNAL__URL=spawn:."
)

NO_LIBRARY: Final = (
    "This release has libsignal for x86-64 only. For another processor, docs/SIGNAL.md says where"
    " to get the library."
)


def run(arguments: Namespace) -> None:
    """Install or update signal-cli."""
    logs.configure(level="error", log_format="console")  # the console says what happens
    settings = load_settings({"signal": {"phone_number": UNKNOWN_NUMBER}})
    if arguments.action == "pin":
        print(shown_pin(settings))
        return
    work = update_signal_cli if arguments.action == "update" else install_signal_cli
    asyncio.run(work(settings, Console(), source=arguments.source or DOWNLOADS))


def shown_pin(settings: Settings) -> str:
    """Return the PIN of the registration lock; raises BotError."""
    if settings.attestation.has_agent:
        raise BotError("In a TEE nobody is shown the PIN: the bot uses it to register again.")
    with explained(settings):
        pin = kept_pin(settings.store.path, asyncio.run(store_key(settings)))
    if pin is None:
        raise BotError("There is no PIN. Set SIGNAL__REGISTRATION_LOCK=true and restart the bot.")
    return pin


async def install_signal_cli(
    settings: Settings,
    console: Console,
    *,
    source: str = DOWNLOADS,
    releases: Sequence[Release] = RELEASES,
) -> str:
    """Install the newest release for this machine, choose it, and return its version.

    Args:
        source: a file, or the address of a folder of releases.
    """
    home = home_of(settings.store.path)
    release, build = newest_for(platform.machine(), java_version(), releases)
    if chosen_in(home) == release.version and is_installed(home, release.version):
        console.say(f"signal-cli {release.version} is installed: the newest that this bot knows.")
        return release.version
    await install(release, build, home, source, _Progress(console, build.name))
    choose(home, release.version)
    if build.needs_java and platform.machine() != "x86_64":
        console.say(NO_LIBRARY)
    console.say(f"Installed: signal-cli {release.version}, in {home}. Its SHA-256 was right.")
    if settings.signal.url != "spawn:":
        console.say(NOT_SPAWNED)
    return release.version


async def update_signal_cli(
    settings: Settings,
    console: Console,
    *,
    source: str = DOWNLOADS,
    releases: Sequence[Release] = RELEASES,
    up_seconds: float = UP_SECONDS,
) -> None:
    """Install the newest release and start it in place of the one before, or return to that."""
    home = home_of(settings.store.path)
    before = chosen_in(home)
    version = await install_signal_cli(settings, console, source=source, releases=releases)
    if version == before:
        return
    console.say("Starting it…")
    try:
        await _start_anew(settings, version, up_seconds)
    except (BotError, TimeoutError) as error:
        choose(home, before)
        await _end_running(settings)
        remove_others(home, before)
        why = "It does not answer in time." if isinstance(error, TimeoutError) else error
        raise BotError(
            f"signal-cli {version} does not come up: {why} The bot uses"
            f" {before or 'the signal-cli on the PATH'} again, as before."
        ) from None
    remove_others(home, version, before)
    console.say(f"signal-cli {version} answers.")


async def _start_anew(settings: Settings, version: str, seconds: float) -> None:
    """End the signal-cli of a running bot, which starts the chosen one; or start it for a moment.

    Raises:
        BotError: it ends at once.
        TimeoutError: it does not answer with its version in time.
    """
    if settings.signal.url != "spawn:":
        return
    async with asyncio.timeout(seconds):
        if await _end_running(settings):
            address = f"unix:{socket_path(settings.store.path)}"
            while await _version_at(address) != version:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
            return
        async with signal_cli_at(settings) as address:
            if (found := await _version_at(address)) != version:
                raise BotError(f"It says that it is {found}.")


async def _end_running(settings: Settings) -> bool:
    """End the signal-cli that the running bot has started; return whether there was one."""
    if settings.signal.url != "spawn:":
        return False
    path = socket_path(settings.store.path)
    process = listener(path)
    if process is None:
        return False
    await end_listener(process, STOP_SECONDS)
    return True


async def _version_at(address: str) -> str | None:
    try:
        async with asyncio.timeout(ANSWER_SECONDS), DaemonSetup.connect(address) as setup:
            return await setup.version()
    except (SignalError, TimeoutError):
        return None


class _Progress:
    """Shows the progress of a download, at a terminal also while it runs."""

    def __init__(self, console: Console, name: str) -> None:
        console.say(f"Fetching {name}…")
        self._console = console
        self._shown = 0

    def __call__(self, size: int) -> None:
        """Show the size so far, in steps of ten megabytes."""
        if size // (10 * MEGABYTE) > self._shown:
            self._shown = size // (10 * MEGABYTE)
            self._console.say(f"  {10 * self._shown} MB")
