"""Answers that are kept for a while, so that asking again costs nothing."""

from collections.abc import Callable, Hashable
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

    def __init__(self, *, seconds: float, entries: int, now: Callable[[], float]) -> None:
        self._seconds = seconds
        self._entries = entries
        self._now = now
        self._values: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key) -> Value | None:
        """Return what is kept, None when there is nothing or it is too old."""
        stored, value = self._values.get(key, (0.0, None))
        return value if value is not None and self._now() - stored < self._seconds else None

    def put(self, key: Key, value: Value) -> None:
        """Keep a value, as the newest."""
        self._values.pop(key, None)
        self._values[key] = (self._now(), value)
        if len(self._values) > self._entries:
            del self._values[next(iter(self._values))]
