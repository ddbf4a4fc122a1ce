"""Access to signal-cli for `link`, `register` and `check`, also while the bot runs."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bot.cli.console import Console
from bot.config.settings import Settings
from bot.errors import BotError
from bot.signal.errors import SignalUnavailable
from bot.signal.installation import home_of
from bot.signal.registration import AccountSetup, DaemonSetup, RestSetup
from bot.signal.spawned import START_SECONDS, SpawnedSignalCli, socket_path

UNKNOWN_NUMBER: Final = "+9999999"
"""Replaces the setting while the number is unknown; the number does not exist."""

PUT_NUMBER: Final = "Put this into .env:\n\nSIGNAL__PHONE_NUMBER={number}"

RETRY_SECONDS: Final = 0.1


@asynccontextmanager
async def open_setup(
    settings: Settings, console: Console, *, wait: bool = False
) -> AsyncIterator[AccountSetup]:
    """Connect to the signal-cli that `SIGNAL__URL` names; with `spawn:`, run one.

    Args:
        wait: for a daemon that was started at the same moment.
    """
    url = settings.signal.url
    if url.startswith(("http://", "https://")):
        async with RestSetup.connect(url) as rest:
            yield rest
    else:
        async with signal_cli_at(settings, console) as address:
            if wait:
                with suppress(TimeoutError):  # connecting then reports the problem
                    await _wait_for(address)
            async with DaemonSetup.connect(address) as daemon:
                yield daemon


@asynccontextmanager
async def signal_cli_at(settings: Settings, console: Console | None = None) -> AsyncIterator[str]:
    """Provide the address of signal-cli's daemon.

    With `spawn:` that is the daemon of the running bot, or else one for this block.
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
        async with started(path, settings.store.path, settings.signal.data_dir) as address:
            yield address


@asynccontextmanager
async def started(path: Path, store: Path, data_dir: Path | None = None) -> AsyncIterator[str]:
    """Run a signal-cli for this block and provide its address, once it listens.

    Args:
        path: of its socket.
        store: `STORE__PATH`.
        data_dir: see `SpawnedSignalCli`.

    Raises:
        BotError: it cannot be started, ends at once, or does not listen.
    """
    signal_cli = SpawnedSignalCli(path, data_dir=data_dir, home=home_of(store))
    async with signal_cli.process() as process:
        try:
            await _wait_for(signal_cli.url, process)
        except TimeoutError:
            raise BotError(
                f"signal-cli was started, but does not listen after {START_SECONDS:g} seconds. Run"
                " signal-cli --version to see why."
            ) from None
        yield signal_cli.url


async def _wait_for(url: str, process: asyncio.subprocess.Process | None = None) -> None:
    """Wait until signal-cli listens, or until its process ends."""
    async with asyncio.timeout(START_SECONDS):
        while not await _listens(url):
            if process is not None and process.returncode is not None:
                raise BotError(
                    f"signal-cli ended with exit code {process.returncode}. Run"
                    " signal-cli --version to see why. signal-cli needs Java 25; older versions"
                    " need Java 21."
                )
            await asyncio.sleep(RETRY_SECONDS)


async def _listens(url: str) -> bool:
    try:
        async with DaemonSetup.connect(url):
            return True
    except SignalUnavailable:
        return False
