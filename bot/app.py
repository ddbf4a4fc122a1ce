"""The daemon: settings in, a running bot out.

Start: store, model, tools, unfinished work, then Signal. Stop, in bounded steps: begin no more
work and take no more messages; store what was read, waiting for room on a full disk; let turns and
sends in progress finish within the grace time; interrupt the rest, which the next start resumes;
close everything; report messages that could not be stored. A second signal ends the process at
once.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import structlog

from bot import __version__
from bot.attestation.trust import REAL, Trust
from bot.config.settings import Settings
from bot.dispatch.background.steady_clock import SteadyClock
from bot.errors import MessagesLost
from bot.messaging.messenger import Messenger
from bot.observability import metrics
from bot.observability.systemd import ServiceManager, service_manager
from bot.process import descriptors
from bot.process.collector import calm_collector
from bot.process.sighup import hangups
from bot.wiring.composition import Parts, wired
from bot.wiring.reload import Reload

log = structlog.get_logger()

NOBODY: Final = ServiceManager(None, None)
"""For a bot that no service manager started."""

GRACE_SECONDS: Final = 10.0

STORE_SECONDS: Final = 20.0
"""For storing what was read, because Signal has been told that it arrived. Together with the end of
the subscription (5 s) and the grace time, this fits into the 45 s of units and compose files.
"""

STUCK_SECONDS: Final = 180.0
"""After this time without a sign or a new attempt, the connection to Signal is stuck for good."""

STATUS_EVERY_SECONDS: Final = 1.0

THREAD_SWITCH_SECONDS: Final = 0.0005
"""The database's threads hand rows to the event loop; Python's default of 5 ms between two
threads would be added to a turn at every hand-over while the loop is busy."""


async def run_until_signalled(settings: Settings) -> None:
    """Run the daemon until SIGTERM or SIGINT; raises what `run` raises."""
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    descriptors.prepare(model_connections=settings.llm.max_concurrency)
    told_to_reload = asyncio.Event()
    with (
        _signals() as told_to_stop,
        hangups(terminal_gone=told_to_stop.set, reload=told_to_reload.set),
    ):
        await run(
            settings,
            told_to_stop=told_to_stop,
            told_to_reload=told_to_reload,
            manager=service_manager(),
        )


async def run(
    settings: Settings,
    *,
    told_to_stop: asyncio.Event,
    told_to_reload: asyncio.Event | None = None,
    ready: Callable[[], None] = lambda: None,
    messenger: Messenger | None = None,
    to_operator: bool = False,
    grace_seconds: float = GRACE_SECONDS,
    store_seconds: float = STORE_SECONDS,
    stuck_seconds: float = STUCK_SECONDS,
    trust: Trust = REAL,
    manager: ServiceManager = NOBODY,
    clock: SteadyClock | None = None,
) -> None:
    """Run the bot until told to stop.

    Args:
        settings: of the bot.
        told_to_stop: begins the shutdown.
        told_to_reload: reloads the settings each time it is set.
        ready: called once the bot takes messages.
        messenger: carries the messages; None: the transport that SIGNAL__URL names.
        to_operator: whoever writes runs the bot, and is told why the model gives no answer.
        grace_seconds: for turns and sends in progress to finish.
        store_seconds: for storing messages that were read.
        stuck_seconds: after so long without life from Signal, the watchdog is not fed.
        trust: whom verifications trust; only tests give another than the real one.
        manager: is told how the bot is.
        clock: only tests give another than the machine's.

    Raises:
        BotError: a part cannot start, or (MessagesLost) messages could not be stored.
        StoreError: the store cannot be opened, or failed while running.
    """
    async with wired(settings, trust, clock, messenger, to_operator=to_operator) as parts:
        await parts.resume()
        async with asyncio.TaskGroup() as tasks:
            background = [
                tasks.create_task(parts.messenger.run(parts.intake.deliver, parts.doubts.take)),
                *(tasks.create_task(work()) for work in parts.background),
                tasks.create_task(manager.watch(partial(_moves, parts, stuck_seconds))),
                tasks.create_task(_tell_status(manager, parts)),
            ]
            reloading = tasks.create_task(
                _reload_when_told(told_to_reload or asyncio.Event(), parts.reload, manager)
            )
            log.info("app.started", version=__version__)
            manager.ready()
            ready()
            with calm_collector():
                await told_to_stop.wait()
            log.info("app.stopping")
            reloading.cancel()
            manager.stopping()
            lost = await _wind_down(parts, grace_seconds, store_seconds)
            for task in background:
                task.cancel()
    log.info("app.stopped")
    if lost:
        raise MessagesLost(lost)


def _moves(parts: Parts, stuck_seconds: float) -> bool:
    """Whether the connection to Signal is alive; being asked proves that the loop runs."""
    return time.monotonic() - parts.messenger.last_sign < stuck_seconds


async def _tell_status(manager: ServiceManager, parts: Parts) -> None:
    """Keep the service manager's status line up to date, until cancelled."""
    told = ""
    while True:
        if (message := parts.status()) != told:
            manager.status(message)
            told = message
        await asyncio.sleep(STATUS_EVERY_SECONDS)


async def _reload_when_told(told: asyncio.Event, reload: Reload, manager: ServiceManager) -> None:
    """Reload the settings whenever told to, until cancelled; told meanwhile, once more."""
    while True:
        await told.wait()
        told.clear()
        manager.reloading()
        await reload()
        manager.ready()


async def _wind_down(parts: Parts, grace_seconds: float, store_seconds: float) -> int:
    """Begin and take nothing more, store what was read, let turns finish.

    Returns:
        how many messages that were read could not be stored.
    """
    parts.mailboxes.wind_down()
    await parts.messenger.stop_receiving(delivery_seconds=store_seconds)
    try:
        async with asyncio.timeout(grace_seconds):
            await parts.mailboxes.drain()
            await parts.urgent.drain()
    except TimeoutError:
        log.warning("app.turns_interrupted")
    parts.mailboxes.cancel()
    parts.urgent.cancel()
    parts.presence.cancel()
    lost = parts.messenger.undelivered
    if lost:
        metrics.INTAKE.labels("lost").inc(lost)
        log.error("app.messages_lost", count=lost)
    return lost


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """Turn the first SIGTERM or SIGINT into an event; the second ends the process at once."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()

    def stop() -> None:
        if told.is_set():
            log.warning("app.forced")
            # Safe at any moment: the store survives a kill.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
