"""SIGHUP says one of two things: a terminal is gone, or the settings are to be read anew.

A bot that somebody has started in a terminal ends with it, in order. One without a terminal is a
service, and reads its settings.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def ignore_at_first() -> None:
    """Ignore who wants settings to be read, as they are being read anyway; a terminal counts."""
    if not _has_terminal():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def hangups(*, terminal_gone: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Call what SIGHUP means here, inside the block; after it nothing hears it any more."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, terminal_gone if _has_terminal() else reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _has_terminal() -> bool:
    # A stream that was closed before the start is None.
    streams = (sys.stdin, sys.stderr)
    return any(stream is not None and stream.isatty() for stream in streams)
