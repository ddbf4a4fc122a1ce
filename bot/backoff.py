"""How long to wait before trying again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from the first to the longest, each shortened by chance.

    Chance keeps many clients of one server from coming back at the same moment.

    Attributes:
        first_seconds: the wait before the first new attempt.
        longest_seconds: no wait is longer.
    """

    first_seconds: float
    longest_seconds: float

    def seconds(self, failures: int) -> float:
        """Return the wait after that many failures in a row, at least one."""
        doublings = min(failures - 1, 32)
        full = min(self.longest_seconds, self.first_seconds * 2**doublings)
        return random.uniform(full / 2, full)  # noqa: S311  # a wait is no secret
