"""The transport that the settings name, the signal-cli behind it, and the health of both."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bot.config.settings import Settings
from bot.observability.health import Health
from bot.signal.installation import home_of
from bot.signal.messenger import Messenger
from bot.signal.releases import age_words
from bot.signal.spawned import START_SECONDS, SpawnedSignalCli, socket_path
from bot.signal.trouble import AccountTrouble

STUCK: Final = "The Signal side takes requests and does not answer; if that lasts, restart it."
SILENT: Final = "signal-cli does not answer; if that lasts, it is ended and started again."


def spawned_signal_cli(settings: Settings) -> SpawnedSignalCli | None:
    """Return the signal-cli that the bot has to start; None if one runs elsewhere."""
    if settings.signal.url != "spawn:":
        return None
    path = settings.store.path
    return SpawnedSignalCli(
        socket_path(path), data_dir=settings.signal.data_dir, home=home_of(path)
    )


def accounts_folder(settings: Settings) -> Path | None:
    """Return signal-cli's own folder; None if the bot does not know it."""
    spawned = spawned_signal_cli(settings)
    return settings.signal.data_dir if spawned is None else spawned.folder


def make_messenger(settings: Settings, at: str | None = None) -> Messenger:
    """Return the transport that `SIGNAL__URL` names; `at` replaces signal-cli's usual address."""
    signal, note_to_self = settings.signal, settings.access.note_to_self
    if signal.url.startswith(("http://", "https://")):
        # Imported here: signalbot costs 0.7 s and 25 MB that the daemon transport does not need.
        from bot.signal.signal_rest import SignalRest  # noqa: PLC0415

        return SignalRest(signal.url, signal.phone_number, note_to_self=note_to_self)
    from bot.signal.signal_daemon import SignalDaemon  # noqa: PLC0415

    spawned = spawned_signal_cli(settings)
    return SignalDaemon(
        at or (signal.url if spawned is None else spawned.url),
        signal.phone_number,
        data_dir=accounts_folder(settings),
        note_to_self=note_to_self,
        start_seconds=0.0 if spawned is None else START_SECONDS,
    )


def account_trouble(
    messenger: Messenger, signal_cli: SpawnedSignalCli | None
) -> AccountTrouble | None:
    """Return trouble with the account; signal-cli's log counts only without a connection."""
    said = None if signal_cli is None or messenger.connected else signal_cli.trouble
    return messenger.trouble or said


async def signal_health(messenger: Messenger, signal_cli: SpawnedSignalCli | None) -> Health:
    """Return whether messages can come in and go out, and whether signal-cli is getting old."""
    if (trouble := account_trouble(messenger, signal_cli)) is not None:
        return Health(ok=False, detail=trouble)
    if signal_cli is not None and signal_cli.silent:
        return Health(ok=False, detail=SILENT)
    if messenger.stuck:
        return Health(ok=False, detail=STUCK)
    if messenger.connected:
        age = age_words(messenger.server, datetime.now(UTC).date())
        return Health(ok=True, detail="Connected." if age is None else f"Connected. {age}")
    return Health(ok=False, detail="Not connected; trying again.")
