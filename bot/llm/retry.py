"""When to ask the endpoint again: backoff, and what `Retry-After` asks for (RFC 9110)."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bot.backoff import Backoff


@dataclass(frozen=True, slots=True)
class RetryPolicy(Backoff):
    """How long and how often a request is tried again.

    Attributes:
        bound_seconds: no attempt begins later than this after the first one.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    bound_seconds: float = 150.0

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        """Return the seconds to wait after so many failures, never a whole crowd's same number."""
        if retry_after_seconds is None:
            return self.seconds(failures)
        return retry_after_seconds + random.uniform(0, self.first_seconds)  # noqa: S311  # no secret


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for; None when it says nothing.

    Args:
        value: the header: seconds, or an HTTP date.
        now: the present, with a time zone.
    """
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
    return max(0.0, (moment - now).total_seconds())
