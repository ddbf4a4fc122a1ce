"""The queue of a chat, and its running turn, which messages can stop, change or join.

A person's next messages become part of the turn that answers the last one. Messages that come
before the first request, or while tools run, go into the next request. While the model writes, a
new message cancels the request, and the turn asks again with it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

import structlog

from bot.chat.replies import parse_command
from bot.observability import metrics
from conversation_store.models import AcceptedMessage
from tools.base import Said

log = structlog.get_logger()

MAX_WAITING_IN_CHAT: Final = 100
"""Waiting messages of a chat; the bot refuses further ones with a message."""

MAX_WAITING: Final = 20_000
"""Messages and other work in all queues; when they are full, callers wait for room."""

Work = Callable[[], Awaitable[object]]
"""Handles every failure except fatal ones."""


@dataclass(eq=False, slots=True)
class Room:
    """Room in the queues of all chats."""

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
    """Messages and other work of a chat, oldest first."""

    room: Room
    is_worked: bool = False
    _items: deque[AcceptedMessage | Work] = field(default_factory=deque, init=False)
    _arrived: Callable[[], None] | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: AcceptedMessage | Work, *, before: int | None = None) -> None:
        """Add a message or other work; the caller has waited for room.

        Args:
            before: ahead of the first message with a higher inbox id; None means at the end.
        """
        later = (
            place
            for place, one in enumerate(self._items)
            if before is not None and isinstance(one, AcceptedMessage) and one.id > before
        )
        self._items.insert(next(later, len(self._items)), item)
        self.room.take(1)
        if self._arrived is not None:
            self._arrived()

    def take(self) -> AcceptedMessage | Work:
        """Remove the first item and return it."""
        self.room.take(-1)
        return self._items.popleft()

    def next_message(self) -> AcceptedMessage | None:
        """Return the first item if it is a message."""
        first = self._items[0] if self._items else None
        return first if isinstance(first, AcceptedMessage) else None

    def find(self, inbox_id: int) -> AcceptedMessage | None:
        """Return a message that waits."""
        messages = (item for item in self._items if isinstance(item, AcceptedMessage))
        return next((message for message in messages if message.id == inbox_id), None)

    def holding(self, inbox_id: int) -> list[AcceptedMessage]:
        """Return the messages that wait as one, if a message is among the later ones of them."""
        for item in self._items:
            if isinstance(item, AcceptedMessage) and any(p.id == inbox_id for p in item.joined):
                return [replace(item, joined=()), *item.joined]
        return []

    def replace(self, inbox_id: int, message: AcceptedMessage | None) -> None:
        """Replace a message in its place, or remove it."""
        if (found := self.find(inbox_id)) is None:
            return
        place = self._items.index(found)
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


T = TypeVar("T")

MAX_PIECES: Final = 20
"""Messages of one turn; further messages get their own turn."""

MAX_JOINED_BYTES: Final = 4_096
"""UTF-8 bytes of messages that join between two requests. Longer ones wait for the next request, or
for a turn of their own, which has more room."""

MAX_CANCELLED: Final = 3
"""Cancelled requests of one turn. Each costs money, so later messages wait for their turn."""


EDIT_ANSWERED_MS: Final = 600_000
"""If a message is edited within this time after its answer, the bot edits the answer."""

MAX_RUNNING_TURNS: Final = 1_024
"""Turns in progress in all chats together; the others wait in their queues."""

STOP_SECONDS: Final = 5.0
"""How long a turn may take to end once it is told to stop."""


class TurnStopped(Exception):
    """`!stop` ended the turn; its messages get no answer."""


class TurnChanged(Exception):
    """A message of the turn was edited or deleted, so its pieces have changed."""


@dataclass(eq=False, repr=False, slots=True)
class RunningTurn:
    """The running turn of a chat: its messages, and ways to stop or change it.

    Attributes:
        queue: of the chat; its next messages may join the turn.
        joined: called with the messages that have just joined.
    """

    queue: Queue
    pieces: list[AcceptedMessage]
    is_verified: Callable[[str], bool]
    _: KW_ONLY
    joined: Callable[[Sequence[AcceptedMessage]], None]
    clock: Callable[[], float] = time.time
    _cancelled: int = field(default=0, init=False)
    # A time-out without a deadline is a cancel scope: moving the deadline to now cancels.
    _scope: asyncio.Timeout = field(default_factory=partial(asyncio.timeout, None), init=False)
    _changes: dict[int, AcceptedMessage | None] = field(default_factory=dict, init=False)
    _interruption: type[TurnStopped | TurnChanged] | None = field(default=None, init=False)
    _ended: asyncio.Event | None = field(default=None, init=False)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], places: asyncio.Semaphore) -> T:
        """Run the work of the turn; apply edits and deletions to the pieces at its end.

        Work that returns None has nothing to store, so `!stop` may still end it.

        Raises:
            TurnStopped: `!stop` ended the turn.
            TurnChanged: a piece was edited or deleted in the meantime.
        """
        metrics.RUNNING_TURNS.inc()
        try:
            async with self._scope, places:
                done = await work()
        except TimeoutError:
            if not self._scope.expired() or self._interruption is None:
                raise
            raise self._interruption from None
        finally:
            if self._interruption is not TurnStopped:
                changed = [self._changes.get(piece.id, _alone(piece)) for piece in self.pieces]
                self.pieces[:] = [piece for piece in changed if piece is not None]
            metrics.RUNNING_TURNS.dec()
            if self._ended is not None:
                self._ended.set()
        if self._interruption is TurnChanged:  # the change came just when the work was done
            raise TurnChanged
        if self._interruption is TurnStopped and done is None:
            raise TurnStopped
        self._interruption = None
        return done

    def piece(self, inbox_id: int) -> AcceptedMessage | None:
        """Return a message of the turn with its edits."""
        found = next((piece for piece in self.pieces if piece.id == inbox_id), None)
        return None if found is None else self._changes.get(inbox_id, found)

    def said_by(self, person: str) -> Sequence[Said]:
        """Return the messages of a person, by ACI, in this turn."""
        messages = (piece.message for piece in self.pieces)
        return [
            Said(one.text, datetime.fromtimestamp(one.received_at / 1_000, UTC))
            for one in messages
            if one.author == person
        ]

    def change(
        self, inbox_id: int, instead: AcceptedMessage | None, also: AcceptedMessage | None = None
    ) -> bool:
        """Start again with a changed message, or without it; False if the turn lacks it.

        Args:
            also: one more message.
        """
        if self.piece(inbox_id) is None:
            return False
        self._changes[inbox_id] = instead
        if also is not None:
            self.pieces.append(also)
            self._changes[also.id] = also
        self._interrupt(TurnChanged)
        return True

    @property
    def is_stopped(self) -> bool:
        """Whether `!stop` ends or has ended the turn."""
        return self._interruption is TurnStopped

    async def stop(self) -> bool:
        """Stop the turn; return False if its answer was complete before."""
        self._interrupt(TurnStopped)
        self._ended = self._ended or asyncio.Event()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            log.warning("turn.slow_to_stop", turn=self.pieces[0].id)
            return True
        return self.is_stopped

    # Messages that join

    def take(self, *, begun: bool = True) -> Sequence[AcceptedMessage]:
        """Move messages of the asker from the chat's queue to the pieces; return them.

        Each message is in the queue or in the pieces at any moment, so edits, deletions and `!stop`
        find it. Stops at the first message that does not join, so no message overtakes another.

        Args:
            begun: the turn is stored, and so has room for short messages without files only.
        """
        taken: list[AcceptedMessage] = []
        room = MAX_JOINED_BYTES
        while (following := self._next(room, begun=begun)) is not None:
            self.queue.replace(following.id, None)
            self.pieces.append(following)
            taken.append(following)
            room -= len(following.message.text.encode())
        if taken:
            log.debug("turn.joined", turn=self.pieces[0].id, count=len(taken))
            self.joined(taken)
        return taken

    async def unless_message_joins(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask the model; cancel the request and return None if a message joins in the meantime."""
        if self._cancelled == MAX_CANCELLED:
            return await ask()
        if self._next() is not None:
            return None
        scope = asyncio.timeout(None)  # a cancel scope, as above

        def arrived() -> None:
            if scope.when() is None and self._next() is not None:
                scope.reschedule(asyncio.get_running_loop().time())

        try:
            async with scope:
                with self.queue.watched(arrived):
                    return await ask()
        except TimeoutError:
            if not scope.expired():
                raise
        self._cancelled += 1
        return None

    def _interrupt(self, interruption: type[TurnStopped | TurnChanged]) -> None:
        """Cancel the work; nothing replaces `TurnStopped`."""
        if self._interruption is not TurnStopped:
            self._interruption = interruption
        if self._scope.when() is None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    def _next(self, room: int = MAX_JOINED_BYTES, *, begun: bool = True) -> AcceptedMessage | None:
        """Return the chat's next message if it joins."""
        if len(self.pieces) >= MAX_PIECES:
            return None
        following = self.queue.next_message()
        if following is None or following.begun or following.joined:
            return None
        message = following.message
        is_short = not message.files and len(message.text.encode()) <= room
        expires_at = message.expires_at
        joins = (
            self.pieces[0].replaces is None  # the answer to an edit takes an older message's place
            and message.kind == "message"
            and message.author == self.pieces[0].message.author
            and parse_command(message.text, {}) is None
            and bool(message.text.strip() or message.files)
            and (is_short or not begun)
            and (expires_at is None or expires_at > self.clock() * 1_000)
            and self.is_verified(message.author)
        )
        return following if joins else None


def rewritten(
    piece: AcceptedMessage, edit: AcceptedMessage, answered: MutableMapping[int, str]
) -> AcceptedMessage:
    """Return a message as its edit reads; `answered`: questions of its turn by the answers' rows.

    The turn starts again, so the model no longer sees which question the message answers.
    """
    message = piece.message.after(edit.message)
    return replace(piece, message=replace(message, answers=_kept(answered, piece.id)))


def as_edited(
    edit: AcceptedMessage, row: int, answered: MutableMapping[int, str]
) -> AcceptedMessage:
    """Return an edited message that is closed, as it reads now; `answered`: see `rewritten`."""
    message = edit.message
    key = message.target_timestamp or message.timestamp
    new = replace(message, kind="message", timestamp=key, edited=True, answers=_kept(answered, row))
    return AcceptedMessage(row, replace(new, target_author=None, target_timestamp=None))


def _kept(answered: MutableMapping[int, str], row: int) -> str:
    """Return the question that a message answers; forget all others.

    The edited message may have led to them, and nobody may be told what its old words have made.
    """
    question = answered.get(row, "")
    answered.clear()
    if question:
        answered[row] = question
    return question


def _alone(piece: AcceptedMessage) -> AcceptedMessage:
    """Return a message without the question: the words that led to it may have changed."""
    return replace(piece, message=replace(piece.message, answers=""))


def joined_into_one(pieces: Sequence[AcceptedMessage]) -> AcceptedMessage | None:
    """Return the first message with the others joined to it; None without any."""
    return replace(pieces[0], joined=tuple(pieces[1:])) if pieces else None


async def nothing() -> None:
    """Do nothing; as work in a queue, keep the messages around it from joining."""
