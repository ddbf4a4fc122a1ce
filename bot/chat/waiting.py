"""The queue of a chat, and the bound of all queues together."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from bot.observability import metrics
from conversation_store.models import AcceptedMessage

MAX_WAITING_IN_CHAT: Final = 100
"""Waiting messages of a chat; the bot refuses further ones with a message."""

MAX_WAITING: Final = 20_000
"""Messages and other work in all queues; when they are full, callers wait for room."""

Work = Callable[[], Awaitable[object]]
"""Handles every failure except fatal ones."""


@dataclass(eq=False, slots=True)
class Room:
    """Room in the queues of all chats.

    Attributes:
        lane: label in the metrics.
    """

    lane: Literal["ordinary", "urgent"]
    _taken: int = field(default=0, init=False)
    _is_closed: bool = field(default=False, init=False)
    _free: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        metrics.WAITING_JOBS.labels(self.lane).set_function(lambda: self._taken)

    async def wait(self) -> None:
        """Wait until there is room."""
        while self._taken >= MAX_WAITING and not self._is_closed:
            self._free.clear()
            await self._free.wait()

    def take(self, places: int) -> None:
        """Take places, or give some back if the number is negative."""
        self._taken += places
        if self._taken < MAX_WAITING:
            self._free.set()

    def close(self) -> None:
        """End all waits for room."""
        self._is_closed = True
        self._free.set()


@dataclass(eq=False, slots=True)
class Queue:
    """Messages and other work of a chat, oldest first.

    Attributes:
        is_worked: a task works through it.
    """

    room: Room
    is_worked: bool = False
    _items: deque[AcceptedMessage | Work] = field(default_factory=deque, init=False)
    _arrived: Callable[[], None] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: AcceptedMessage | Work) -> None:
        """Add a message or other work as the last; the caller has waited for room."""
        self._items.append(item)
        self.room.take(1)
        if self._arrived is not None:
            self._arrived()

    def take(self) -> AcceptedMessage | Work:
        """Take the first out."""
        self.room.take(-1)
        return self._items.popleft()

    def next_message(self) -> AcceptedMessage | None:
        """Return the first if it is a message."""
        first = self._items[0] if self._items else None
        return first if isinstance(first, AcceptedMessage) else None

    def find(self, inbox_id: int) -> AcceptedMessage | None:
        """Return a message that waits."""
        place = self._place(inbox_id)
        found = None if place is None else self._items[place]
        return found if isinstance(found, AcceptedMessage) else None

    def replace(self, inbox_id: int, message: AcceptedMessage | None) -> None:
        """Replace a message in its place, or remove it."""
        place = self._place(inbox_id)
        if place is None:
            return
        if message is not None:
            self._items[place] = message
        else:
            del self._items[place]
            self.room.take(-1)

    def drop(self, *, before: int) -> list[AcceptedMessage]:
        """Remove the messages that came before one, and return them; other work stays."""
        dropped: list[AcceptedMessage] = []
        kept: deque[AcceptedMessage | Work] = deque()
        for item in self._items:
            if isinstance(item, AcceptedMessage) and item.id < before:
                dropped.append(item)
            else:
                kept.append(item)
        self._items = kept
        self.room.take(-len(dropped))
        return dropped

    def clear(self) -> None:
        """Remove everything; the next start does the rest."""
        self.room.take(-len(self._items))
        self._items.clear()

    @contextmanager
    def watched(self, arrived: Callable[[], None]) -> Iterator[None]:
        """Call a function inside whenever something is added."""
        self._arrived = arrived
        try:
            yield
        finally:
            self._arrived = None

    def _place(self, inbox_id: int) -> int | None:
        for place, item in enumerate(self._items):
            if isinstance(item, AcceptedMessage) and item.id == inbox_id:
                return place
        return None
