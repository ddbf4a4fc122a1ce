"""This process and the operating system: descriptors, garbage collection, signals; units."""

import asyncio
import codecs
import concurrent.futures.thread  # noqa: F401 - see `prepare_descriptors`
import gc
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

MAX_DESCRIPTORS: Final = 65_536
"""Far more than is ever needed; more would slow programs that close every possible descriptor."""
DESCRIPTORS_WITHOUT_MODEL: Final = 256
"""For store, Signal, tools and health together."""
CODECS: Final = ("ascii", "idna", "latin-1", "utf-16-le", "utf-8")
READ_BYTES: Final = 4_096

COLLECTOR_THRESHOLDS: Final = (20_000, 20, 50)
"""Allocations before a young, an older and a full collection; Python's default is 700, 10 and 10.

A full one stops the event loop while it looks at every object: 100 to 180 ms with 1,000 chats.
"""


def prepare_descriptors(*, model_connections: int) -> None:
    """Raise the limit of open files and connections, and log if that is not enough.

    When no descriptor is left (EMFILE), code that needs one retries later, as after any failed
    connection. A failed import cannot be retried, so this module loads in advance what Python
    loads on first use: codecs, and asyncio's threads.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    for codec in CODECS:
        codecs.lookup(codec)
    if wanted < DESCRIPTORS_WITHOUT_MODEL + model_connections:
        import structlog  # noqa: PLC0415 - SIGHUP has to be ignored before longer imports

        structlog.get_logger().warning("descriptors.few", limit=wanted)


@contextmanager
def calm_collector() -> Iterator[None]:
    """Collect garbage less often inside the block, and ignore objects from before it."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def read_some(descriptor: int) -> bytes:
    """Wait for input and return it; empty at its end. Takes a terminal, a pipe or a file."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # a plain file or /dev/null: never waits, so epoll refuses it
        return os.read(descriptor, READ_BYTES)
    try:
        await readable.wait()
        return os.read(descriptor, READ_BYTES)
    finally:
        loop.remove_reader(descriptor)


def ignore_early_hangups() -> None:
    """Ignore requests to reload while the settings are first read; a lost terminal still counts."""
    if _terminal() is None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def signals(stop: asyncio.Event, reload: asyncio.Event) -> Iterator[None]:
    """Turn signals into events inside the block; afterwards, ignore SIGHUP.

    A second SIGTERM or SIGINT ends the process at once. At SIGHUP, a bot that was started in a
    terminal ends with it. A bot without a terminal is a service, and reloads its settings.
    """
    loop = asyncio.get_running_loop()
    terminal = _terminal()

    def end() -> None:
        if stop.is_set():
            import structlog  # noqa: PLC0415 - as above

            structlog.get_logger().warning("app.forced")
            # Safe at any moment: the store survives a kill.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        stop.set()

    hang_up = reload.set if terminal is None else stop.set
    handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: hang_up}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    # Elsewhere (macOS, for development) the signal has to suffice.
    watch = None
    if terminal is not None and sys.platform == "linux":
        watch = _watch(terminal, stop.set)
    try:
        yield
    finally:
        if watch is not None:
            loop.remove_reader(watch)
            watch.close()
        for number in handlers:
            loop.remove_signal_handler(number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _watch(terminal: int, gone: Callable[[], None]) -> "select.epoll":
    """Call `gone` when the terminal is gone, even if no signal comes.

    The kernel signals only the leader of the session; a shell passes that on, make does not.
    """
    loop = asyncio.get_running_loop()
    watch = select.epoll()
    watch.register(terminal, 0)  # no events of interest: epoll always reports a hang-up

    def hung_up() -> None:
        loop.remove_reader(watch)
        gone()

    loop.add_reader(watch, hung_up)
    return watch


def _terminal() -> int | None:
    """Return the descriptor of the bot's terminal, if it has one."""
    # A stream that was closed before the start is missing here.
    streams = (sys.stdin, sys.stderr)
    descriptors = (one.fileno() for one in streams if one is not None and one.isatty())
    return next(descriptors, None)


def size(count: int) -> str:
    """Return a number of bytes in binary units: `12 MiB`."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units: `3 d 4 h`, `12 s`."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s"))
    shown = [f"{amount} {unit}" for amount, unit in units if amount]
    return " ".join(shown[:2]) or "0 s"
