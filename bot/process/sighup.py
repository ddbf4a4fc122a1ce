"""SIGHUP means one of two things: the terminal is gone, or the settings are to be reloaded.

A bot that was started in a terminal ends with it, in order. A bot without a terminal is a service,
and reloads its settings.
"""

import asyncio
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def ignore_at_first() -> None:
    """Ignore requests to reload while the settings are first read; a lost terminal still counts."""
    if _terminal() is None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def hangups(*, terminal_gone: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Inside the block, call what SIGHUP means here; after it, SIGHUP is ignored."""
    loop = asyncio.get_running_loop()
    terminal = _terminal()
    if terminal is None:
        loop.add_signal_handler(signal.SIGHUP, reload)
        watch = None
    else:
        loop.add_signal_handler(signal.SIGHUP, terminal_gone)
        # Elsewhere (macOS, for development) the signal has to suffice.
        watch = _watch(terminal, terminal_gone) if sys.platform == "linux" else None
    try:
        yield
    finally:
        if watch is not None:
            loop.remove_reader(watch)
            watch.close()
        loop.remove_signal_handler(signal.SIGHUP)
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
    # A stream that was closed before the start is None.
    streams = (sys.stdin, sys.stderr)
    descriptors = (one.fileno() for one in streams if one is not None and one.isatty())
    return next(descriptors, None)
