"""How sends are counted and timed, the same over every transport."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bot.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.observability.metrics import SEND_SECONDS, SENDS

_OUTCOMES: Final[dict[type[SignalError], str]] = {
    SignalUnavailable: "unavailable",
    SignalPassedOver: "passed_over",
    SignalTimeout: "timeout",
    SignalRateLimited: "rate_limited",
    SignalUntrusted: "untrusted",
    SignalRejected: "rejected",
}


@contextmanager
def counted_send() -> Iterator[None]:
    """Count a send by its outcome, and time one that went out."""
    began = time.monotonic()
    try:
        yield
    except SignalError as error:
        SENDS.labels(_outcome(error)).inc()
        raise
    SENDS.labels("sent").inc()
    SEND_SECONDS.observe(time.monotonic() - began)


def _outcome(error: SignalError) -> str:
    names = (name for kind, name in _OUTCOMES.items() if isinstance(error, kind))
    return next(names, "failed")
