"""Access to signal-cli before the bot runs or beside it, for `link`, `register` and `check`."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from bot.cli.console import Console
from bot.config.settings import Settings
from bot.errors import BotError, SignalUnavailable
from bot.messaging.daemon_setup import DaemonSetup
from bot.messaging.spawned import SpawnedSignalCli, socket_path

UNKNOWN_NUMBER: Final = "+9999999"
"""In place of the setting where it need not be known yet; nobody has this number."""

START_SECONDS: Final = 60.0
"""signal-cli takes 2 s, and 10 where it has accounts and no network."""
RETRY_SECONDS: Final = 0.1


class AccountSetup(Protocol):
    """Makes an account: `messaging.daemon_setup.DaemonSetup`, `messaging.rest_setup.RestSetup`.

    Every method raises a SignalError if it fails; RegistrationRefused has Signal's reason.
    """

    async def version(self) -> str:
        """Return the version of the program that was asked, as `1.2.3`."""
        ...

    async def accounts(self) -> frozenset[str]:
        """Return the numbers of the accounts that signal-cli has."""
        ...

    async def start_link(self, device_name: str) -> str:
        """Return a link that a phone scans within some minutes."""
        ...

    async def finish_link(self, uri: str, device_name: str) -> str:
        """Wait for the phone and return the number of its account."""
        ...

    async def register(self, number: str, *, captcha: str | None, voice: bool) -> None:
        """Have Signal send a code to a number, by SMS or by a call."""
        ...

    async def verify(self, number: str, code: str, *, pin: str | None) -> None:
        """Give Signal the code, and the PIN of a registration lock."""
        ...


@asynccontextmanager
async def open_setup(
    settings: Settings, console: Console, *, wait: bool = False
) -> AsyncIterator[AccountSetup]:
    """Connect to the signal-cli that `SIGNAL__URL` names; with `spawn:`, run one.

    Args:
        settings: of the bot.
        console: for a line when something takes a moment.
        wait: for a daemon that was started at the same moment.

    Raises:
        SignalUnavailable: nobody answers there.
        SettingsError: there is no signal-cli to run.
        BotError: it does not start.
    """
    url = settings.signal.url
    if url.startswith(("http://", "https://")):
        # Imported here: users of signal-cli's daemon need no aiohttp.
        from bot.messaging.rest_setup import RestSetup  # noqa: PLC0415

        async with RestSetup.connect(url) as rest:
            yield rest
    else:
        async with signal_cli_at(settings, console) as address:
            if wait:
                with suppress(TimeoutError):  # then connecting says what is wrong
                    await _wait_for(address)
            async with DaemonSetup.connect(address) as daemon:
                yield daemon


@asynccontextmanager
async def signal_cli_at(settings: Settings, console: Console | None = None) -> AsyncIterator[str]:
    """Provide the address of signal-cli's daemon.

    With `spawn:` that is the daemon of the running bot, or else one for this block.

    Raises:
        SettingsError: there is no signal-cli to run.
        BotError: it does not start.
    """
    if settings.signal.url != "spawn:":
        yield settings.signal.url
        return
    path = socket_path(settings.store.path)
    if await _listens(f"unix:{path}"):
        yield f"unix:{path}"
        return
    if console is not None:
        console.say("Starting signal-cli…")
    with TemporaryDirectory(prefix="signal-tee-bot-") as folder:
        if not os.access(path.parent, os.W_OK | os.X_OK):
            # The bot has never run: its folder is left to its first start.
            path = Path(folder) / path.name
        signal_cli = SpawnedSignalCli(path, data_dir=settings.signal.data_dir)
        async with signal_cli.process() as process:
            try:
                await _wait_for(signal_cli.url, process)
            except TimeoutError:
                raise BotError("signal-cli was started, but does not listen.") from None
            yield signal_cli.url


async def _wait_for(url: str, process: asyncio.subprocess.Process | None = None) -> None:
    """Wait until signal-cli listens, or until its process ends."""
    async with asyncio.timeout(START_SECONDS):
        while not await _listens(url):
            if process is not None and process.returncode is not None:
                raise BotError(
                    f"signal-cli ended with exit code {process.returncode}. Try what"
                    " signal-cli --version says; it needs Java 25, older ones Java 21."
                )
            await asyncio.sleep(RETRY_SECONDS)


async def _listens(url: str) -> bool:
    try:
        async with DaemonSetup.connect(url):
            return True
    except SignalUnavailable:
        return False
