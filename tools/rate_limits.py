"""Limits of the rate of tool calls: per tool, per person, and for the whole bot.

Each limit is a token bucket that holds one minute's worth of calls and refills continuously. The
bot stores one time per bucket: when it will be full again. A call moves that time on by the refill
time of one token, and is allowed if it stays within a minute from now. (This is the generic cell
rate algorithm: ITU-T I.371, annex A, "virtual scheduling".)
"""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from tools.base import Tool
from tools.errors import RateLimited

_SECOND: Final = 1_000_000_000
_MINUTE: Final = 60 * _SECOND


class RateLimits:
    """Counter of calls; it forgets each within a minute.

    Args:
        per_person: calls per minute for one person.
        per_bot: calls per minute for all people together.
        clock: monotonic, in nanoseconds.

    Attributes:
        per_person: may be changed at any time, like `per_bot`.
    """

    def __init__(
        self, *, per_person: int, per_bot: int, clock: Callable[[], int] = monotonic_ns
    ) -> None:
        self.per_person = per_person
        self.per_bot = per_bot
        self._clock = clock
        self._full_at: OrderedDict[tuple[str, str], int] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of stored buckets: those with calls in the last minute."""
        return len(self._full_at)

    def take(self, tool: Tool, caller: str) -> None:
        """Take one call from the tool's, the person's and the bot's bucket, or from none.

        Raises:
            RateLimited: one of them is empty; the text says which, and until when.
        """
        now = self._clock()
        # The first one has waited longest for a call.
        while self._full_at and next(iter(self._full_at.values())) <= now:
            self._full_at.popitem(last=False)
        limits = (
            (("tool", tool.name), tool.calls_per_minute, f"too many calls of {tool.name}"),
            (("person", caller), self.per_person, "too many tool calls for this person"),
            (("bot", ""), self.per_bot, "too many tool calls by everybody together"),
        )
        taken = {
            key: max(self._full_at.get(key, now), now) + _MINUTE // per_minute
            for key, per_minute, _ in limits
        }
        wait, reason = max((taken[key] - _MINUTE - now, message) for key, _, message in limits)
        if wait > 0:
            seconds = -(-wait // _SECOND)
            after = "1 second" if seconds == 1 else f"{seconds} seconds"
            raise RateLimited(f"Not run: {reason} right now; the next one can run in {after}.")
        for key, full_at in taken.items():
            self._full_at[key] = full_at
            self._full_at.move_to_end(key)
