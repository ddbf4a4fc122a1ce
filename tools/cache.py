"""Answers that are kept for a while, in memory only, so that asking again costs nothing."""

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """A bounded mapping that forgets: what is too old, and the oldest when it is full.

    Args:
        seconds: how long a value is kept.
        entries: at most.
        now: a clock in seconds that never goes back.
    """

    def __init__(
        self, *, seconds: float, entries: int, now: Callable[[], float] = monotonic
    ) -> None:
        self._seconds = seconds
        self._entries = entries
        self._now = now
        self._values: dict[Key, tuple[float, Value]] = {}

    def __len__(self) -> int:
        """How many values are kept."""
        self._forget_old_ones()
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """Return what is kept, None when there is nothing or it is too old."""
        self._forget_old_ones()
        kept = self._values.get(key)
        return None if kept is None else kept[1]

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, as the newest."""
        self._values.pop(key, None)
        self._values[key] = (self._now() + self._seconds, value)
        if len(self._values) > self._entries:
            self._forget_oldest()

    def _forget_old_ones(self) -> None:
        now = self._now()
        while self._values and next(iter(self._values.values()))[0] <= now:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        del self._values[next(iter(self._values))]
