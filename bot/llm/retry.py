"""Whether an endpoint can be reached, and when to ask it again.

An endpoint that has not answered once since the start may have a wrong address; any other one is
only away for a while.
"""

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpx2
import structlog

from bot.backoff import Backoff
from bot.llm.errors import LlmContextTooLong, LlmError, LlmUnavailable, LlmUnreachable
from tools.http import HopelessConnection, PassingTrouble

BREAKER_PAUSE: Final = Backoff(first_seconds=15.0, longest_seconds=300.0)
"""How long an endpoint is left alone after one failure, two, ..."""

SEE_BASE_URL: Final = "See LLM__BASE_URL."
PERHAPS_PLAIN: Final = "If it speaks plain HTTP, LLM__BASE_URL must begin with http://."
PERHAPS_TLS: Final = "If it speaks TLS, LLM__BASE_URL must begin with https://."

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RetryPolicy(Backoff):
    """How long and how often a request is tried again.

    Attributes:
        bound_seconds: from the first attempt to the begin of the last one.
        unreached_seconds: the same from the first failure, at an endpoint that has never answered:
            its address may be wrong, or its server is just starting.
        silent_seconds: of failures, until the waiting person is told.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    bound_seconds: float = 150.0
    unreached_seconds: float = 5.0
    silent_seconds: float = 20.0

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        """Return the seconds to wait after some failures; chance spreads many clients."""
        if retry_after_seconds is None:
            return self.seconds(failures)
        return retry_after_seconds + random.uniform(0, self.first_seconds)  # noqa: S311  # no secret


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header, which may be an HTTP date; None if invalid."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


@dataclass(slots=True)
class Breaker:
    """Keeps a dead endpoint from costing every turn its time-outs."""

    _failures: int = 0
    _open_until: float = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether to ask another endpoint instead, if there is one."""
        return time.monotonic() < self._open_until

    def failed(self) -> None:
        """Note that the endpoint gave no answer."""
        self._failures += 1
        self._open_until = time.monotonic() + BREAKER_PAUSE.seconds(self._failures)

    def answered(self) -> None:
        """Note that the endpoint answered."""
        self._failures, self._open_until = 0, -math.inf


class Reach:
    """Knows whether an endpoint can be reached.

    Attributes:
        host: with the port if the address names one; never the part before an `@`.
        trouble: host and reason of the last failure; None after an answered request.
    """

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        self.host = url.netloc.rpartition("@")[2]
        self.trouble: str | None = None
        self._is_plain = url.scheme == "http"
        self._reached = False

    def reached(self) -> None:
        """Note that the address speaks HTTP."""
        self._reached = True

    def explained(self, error: LlmError) -> str:
        """Return the host with the reason of the error."""
        return f"{self.host}: {error.reason}"

    def note(self, error: LlmError) -> None:
        """Keep a failure as the present trouble."""
        self.trouble = self.explained(error)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep and log the reason of a failure inside the block; success ends the trouble."""
        try:
            yield
        except LlmContextTooLong:
            raise  # says nothing about the endpoint
        except LlmError as error:
            self.note(error)
            name = type(error).__name__
            log.warning("llm.failed", error=name, host=self.host, reason=error.reason)
            raise
        if self.trouble is not None:
            log.info("llm.answers_again", host=self.host)
        self.trouble = None

    def lost(self, error: httpx2.TransportError) -> LlmUnavailable:
        """Return the error for a request without any HTTP answer."""
        reason = str(error)
        if isinstance(error, HopelessConnection):
            return LlmUnreachable(f"{reason} {SEE_BASE_URL}", is_final=True)
        if self._reached or isinstance(error, PassingTrouble):
            return LlmUnavailable(reason)
        # TLS servers close plain connections, and plain ones may wait for more.
        advice, is_slow = SEE_BASE_URL, isinstance(error, httpx2.ConnectTimeout)
        if is_slow and not self._is_plain:
            advice = PERHAPS_PLAIN
        elif self._is_plain and isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
            advice = PERHAPS_TLS
        return LlmUnreachable(f"{reason} {advice}", is_final=is_slow)
