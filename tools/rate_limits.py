"""How often tools may be called: per tool, per person, and by everybody together.

Every limit is a token bucket that holds one minute's worth of calls and refills continuously. Of a
bucket only the moment is kept at which it will be full again: a call moves it on by the time that
one token takes to refill, and fits as long as the moment lies within the minute that an empty
bucket takes. (The generic cell rate algorithm: ITU-T I.371, annex A, "virtual scheduling".)
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from tools.base import Tool
from tools.errors import RateLimited

_SECOND: Final = 1_000_000_000
_MINUTE: Final = 60 * _SECOND

_Key = tuple[str, str]


class RateLimits:
    """Counts calls. Nothing in it waits, and what it keeps is forgotten within a minute.

    Args:
        per_person: calls per minute that are made for one person.
        per_bot: calls per minute of all people together.
        clock: nanoseconds that never go back.

    Attributes:
        per_person: may be changed at any time, as may `per_bot`.
    """

    def __init__(
        self, *, per_person: int, per_bot: int, clock: Callable[[], int] = monotonic_ns
    ) -> None:
        self.per_person = per_person
        self.per_bot = per_bot
        self._clock = clock
        self._full_at: OrderedDict[_Key, int] = OrderedDict()

    def __len__(self) -> int:
        """How many buckets are remembered: those that were taken from within the last minute."""
        return len(self._full_at)

    def take(self, tool: Tool, caller: str) -> None:
        """Take one call from the tool's, the person's and the bot's bucket, or from none.

        Raises:
            RateLimited: one of them is empty; the text says which, and until when.
        """
        now = self._clock()
        self._forget_full_ones(now)
        limits = (
            (("tool", tool.name), tool.calls_per_minute, f"too many calls of {tool.name}"),
            (("person", caller), self.per_person, "too many tool calls for this person"),
            (("bot", ""), self.per_bot, "too many tool calls by everybody together"),
        )
        taken = {key: self._full_after(key, per_minute, now) for key, per_minute, _ in limits}
        wait, reason = max((taken[key] - _MINUTE - now, message) for key, _, message in limits)
        if wait > 0:
            raise RateLimited(
                f"Not run: {reason} right now; the next one can run in {_seconds(wait)}."
            )
        for key, full_at in taken.items():
            self._full_at[key] = full_at
            self._full_at.move_to_end(key)

    def _full_after(self, key: _Key, per_minute: int, now: int) -> int:
        """Return when a bucket would be full again if a call were taken from it now."""
        return max(self._full_at.get(key, now), now) + _MINUTE // per_minute

    def _forget_full_ones(self, now: int) -> None:
        """Forget buckets from the one on that has not been taken from for longest."""
        while self._full_at and next(iter(self._full_at.values())) <= now:
            self._full_at.popitem(last=False)


def _seconds(nanoseconds: int) -> str:
    seconds = -(-nanoseconds // _SECOND)
    return "1 second" if seconds == 1 else f"{seconds} seconds"
