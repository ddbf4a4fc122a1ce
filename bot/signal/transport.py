"""The transport that the settings name, the signal-cli behind it, and the health of both."""

from typing import Final

from bot.config.settings import Settings
from bot.observability.health import Health
from bot.signal.installation import home_of
from bot.signal.messenger import NOT_REGISTERED, Messenger
from bot.signal.spawned import START_SECONDS, SpawnedSignalCli, socket_path

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
        data_dir=signal.data_dir if spawned is None else spawned.folder,
        note_to_self=note_to_self,
        start_seconds=0.0 if spawned is None else START_SECONDS,
    )


async def signal_health(messenger: Messenger, signal_cli: SpawnedSignalCli | None) -> Health:
    """Return whether messages can come in and go out."""
    if signal_cli is not None and signal_cli.silent:
        return Health(ok=False, detail=SILENT)
    if messenger.stuck:
        return Health(ok=False, detail=STUCK)
    if messenger.unregistered:
        return Health(ok=False, detail=NOT_REGISTERED)
    if messenger.connected:
        return Health(ok=True, detail="Connected.")
    return Health(ok=False, detail="Not connected; trying again.")
