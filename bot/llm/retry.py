"""When to try again: jittered exponential backoff, and what `Retry-After` asks for (RFC 9110)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random

_jitter = Random()  # noqa: S311 - it spreads a crowd and keeps no secret


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often a request is tried again.

    Attributes:
        bound_seconds: no attempt begins later than this after the first one.
        first_seconds: the pause after the first failure; it doubles from there.
        longest_seconds: no pause grows beyond this by itself.
    """

    bound_seconds: float = 150.0
    first_seconds: float = 0.5
    longest_seconds: float = 10.0

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        """Return the seconds to wait after so many failures, never a whole crowd's same number."""
        # The exponent is bounded so that a long bound with short pauses cannot overflow.
        grown = self.first_seconds * 2.0 ** min(failures - 1, 32)
        backoff = min(self.longest_seconds, grown) * _jitter.uniform(0.5, 1.0)
        if retry_after_seconds is None:
            return backoff
        return retry_after_seconds + self.first_seconds * _jitter.random()


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
