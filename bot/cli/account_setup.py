"""The way to signal-cli beside the bot or before it has an account: `link`, `register`, `check`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol

from bot.cli.console import Console
from bot.config.settings import Settings
from bot.errors import BotError, SignalUnavailable
from bot.messaging.daemon_setup import DaemonSetup
from bot.messaging.spawned import SpawnedSignalCli, socket_path

START_SECONDS: Final = 60.0
"""signal-cli takes 2 s, and 10 where it has accounts and no network."""
RETRY_SECONDS: Final = 0.1


class AccountSetup(Protocol):
    """What signal-cli does for an account that does not exist yet.

    `messaging.daemon_setup.DaemonSetup` and `messaging.rest_setup.RestSetup`. Every method raises
    a SignalError where it is not done, of which RegistrationRefused has the reason.
    """

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
        console: told what takes a moment.
        wait: a daemon may have been started at this moment; give it the time that this takes.

    Raises:
        SignalUnavailable: nobody answers there.
        SettingsError: there is no signal-cli to run.
        BotError: it does not start.
    """
    url = settings.signal.url
    if url.startswith(("http://", "https://")):
        # Imported here: who runs signal-cli's daemon does without aiohttp.
        from bot.messaging.rest_setup import RestSetup  # noqa: PLC0415

        async with RestSetup.connect(url) as rest:
            yield rest
    else:
        async with (
            signal_cli_at(settings, console) as address,
            _connected(address, wait=wait) as daemon,
        ):
            yield daemon


@asynccontextmanager
async def signal_cli_at(settings: Settings, console: Console | None = None) -> AsyncIterator[str]:
    """Provide the address of signal-cli's daemon.

    With `spawn:` that is the daemon of a bot that runs, or else one for the time of the block.

    Args:
        settings: of the bot.
        console: told what takes a moment.

    Raises:
        SettingsError: there is no signal-cli to run.
        BotError: it does not start.
    """
    if settings.signal.url != "spawn:":
        yield settings.signal.url
        return
    signal_cli = SpawnedSignalCli(
        socket_path(settings.store.path), data_dir=settings.signal.data_dir
    )
    if await _listens(signal_cli.url):
        yield signal_cli.url
        return
    if console is not None:
        console.say("Starting signal-cli…")
    async with signal_cli.process() as process:
        await _started(signal_cli.url, process)
        yield signal_cli.url


@asynccontextmanager
async def _connected(url: str, *, wait: bool) -> AsyncIterator[DaemonSetup]:
    if wait:
        await _start_of(url)
    async with DaemonSetup.connect(url) as daemon:
        yield daemon


async def _start_of(url: str) -> None:
    """Wait for a daemon that starts; of one that does not, connecting tells."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while True:
                if await _listens(url):
                    return
                await asyncio.sleep(RETRY_SECONDS)


async def _listens(url: str) -> bool:
    try:
        async with DaemonSetup.connect(url):
            return True
    except SignalUnavailable:
        return False


async def _started(url: str, process: asyncio.subprocess.Process) -> None:
    """Wait until signal-cli listens.

    Raises:
        BotError: it ended instead, or takes too long.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await _listens(url):
                if process.returncode is not None:
                    raise BotError(
                        f"signal-cli ended with exit code {process.returncode}. Try what"
                        " signal-cli --version says; it needs Java 25, older ones Java 21."
                    )
                await asyncio.sleep(RETRY_SECONDS)
    except TimeoutError:
        raise BotError("signal-cli was started, but does not listen.") from None
