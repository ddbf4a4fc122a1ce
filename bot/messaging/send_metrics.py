"""How sends are counted, the same over every transport."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bot.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.observability.metrics import SENDS

_OUTCOMES: Final[dict[type[SignalError], str]] = {
    SignalUnavailable: "unavailable",
    SignalTimeout: "timeout",
    SignalRateLimited: "rate_limited",
    SignalRejected: "rejected",
}


@contextmanager
def counted_send() -> Iterator[None]:
    """Count a send by its outcome."""
    try:
        yield
    except SignalError as error:
        SENDS.labels(_OUTCOMES.get(type(error), "failed")).inc()
        raise
    SENDS.labels("sent").inc()
