"""SIGHUP says one of two things: a terminal is gone, or the settings are to be read anew.

A bot that somebody has started in a terminal ends with it, in order. One without a terminal is a
service, and reads its settings.
"""

import asyncio
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def ignore_at_first() -> None:
    """Ignore who wants settings to be read, as they are being read anyway; a terminal counts."""
    if _terminal() is None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def hangups(*, terminal_gone: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Call what SIGHUP means here, inside the block; after it nothing hears it any more."""
    loop = asyncio.get_running_loop()
    terminal = _terminal()
    if terminal is None:
        loop.add_signal_handler(signal.SIGHUP, reload)
        watch = None
    else:
        loop.add_signal_handler(signal.SIGHUP, terminal_gone)
        # Elsewhere (macOS, for development) SIGHUP has to do.
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
    """Call `gone` when a terminal is, also where nobody tells us.

    The kernel signals the leader of the session alone; a shell passes that on, make does not.
    """
    loop = asyncio.get_running_loop()
    watch = select.epoll()
    watch.register(terminal, 0)  # a hang-up is told in any case, and nothing else is asked for

    def hung_up() -> None:
        loop.remove_reader(watch)
        gone()

    loop.add_reader(watch, hung_up)
    return watch


def _terminal() -> int | None:
    """Return the descriptor of the terminal that the bot runs in, if there is one."""
    # A stream that was closed before the start is None.
    streams = (sys.stdin, sys.stderr)
    descriptors = (one.fileno() for one in streams if one is not None and one.isatty())
    return next(descriptors, None)
