"""Background work: stop receiving while the disk is full, expire messages, delete files, tidy.

While the store refuses writes, messages stay on Signal's server, safe from crashes of this machine.
Writers to the store wait until it recovers (`conversation_store.database`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import structlog

from bot.backoff import set_within
from bot.chat.media import delete_from, discard
from bot.observability import metrics
from bot.signal.events import IncomingMessage
from bot.signal.messenger import Messenger
from conversation_store.files import FileStore
from conversation_store.models import AcceptedMessage, ReceivedFile, ReceivedMessage
from conversation_store.search import SearchStore
from conversation_store.store import ConversationStore
from conversation_store.upkeep import StoreUpkeep
from tools.workspace.workspaces import Workspaces

log = structlog.get_logger()

CLOCK_SECONDS: Final = 1.0
"""Longest delay until the bot notices that the clock was set or the machine slept."""

LOOK_SECONDS: Final = 60.0
"""Interval of routine looks into the store."""

EXPIRY_PAUSE_SECONDS: Final = 0.5
"""Shortest pause between two looks for expired messages."""

DISCARD_SECONDS: Final = 10.0

MAX_WAITING: Final = 50_000
"""Files that wait to be deleted; when full, the oldest stay on the Signal side."""

AGAIN_SECONDS: Final = 60.0
"""After this time, the bot tries again to delete files that it could not delete."""

INDEX_SECONDS: Final = 5.0
EVERY_SECONDS: Final = 3_600.0
DAY_SECONDS: Final = 86_400.0


async def hold_while_refused(
    refusal_other_than: Callable[[str | None], Awaitable[str | None]], messenger: Messenger
) -> None:
    """Stop receiving while the store refuses writes, and log why; runs until cancelled."""
    metrics.STORE_WRITABLE.set(1)
    while True:
        refusal = await refusal_other_than(None)
        metrics.STORE_WRITABLE.set(0)
        await messenger.hold_receiving()
        while refusal is not None:
            log.error("store.refuses", reason=refusal)
            refusal = await refusal_other_than(refusal)
        metrics.STORE_WRITABLE.set(1)
        log.warning("store.takes_again")
        await messenger.resume_receiving()


@dataclass(eq=False, repr=False, slots=True)
class Timer:
    """Wakes a task at `next_at` (ms since 1970) of a clock that may be set, or at a change."""

    clock: Callable[[], float]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    next_at: int | None = field(default=None, init=False)

    def at(self, when_ms: int) -> None:
        """Wake the task at that time, unless it wakes earlier."""
        if self.next_at is None or when_ms < self.next_at:
            self.next_at = when_ms
            self.changed.set()

    async def wait(self) -> None:
        """Return at `next_at`, at a change, or after `LOOK_SECONDS`."""
        looks_at = time.monotonic() + LOOK_SECONDS
        while not self.changed.is_set():
            left = looks_at - time.monotonic()
            if self.next_at is not None:
                left = min(left, self.next_at / 1_000 - self.clock())
            if left <= 0:
                return
            await set_within(self.changed, min(left, CLOCK_SECONDS))


@dataclass(eq=False, repr=False, slots=True)
class Expiry:
    """Deletes expired messages at their time.

    If a message still waits for its answer, its words are deleted, and the answer says so. A
    suspended turn is deleted together with its message.
    """

    store: ConversationStore
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    timer: Timer = field(init=False)

    def __post_init__(self) -> None:
        self.timer = Timer(self.clock)

    async def run(self, ended: Callable[[AcceptedMessage], None]) -> None:
        """Delete expired messages until cancelled; call `ended` for those with suspended turns."""
        while True:
            self.timer.changed.clear()
            self.timer.next_at = None
            expired = await self.store.upkeep.expire(int(self.clock() * 1_000))
            for accepted in expired.ended:
                ended(accepted)
            if expired.next_at is not None:
                self.timer.at(expired.next_at)
            self.timer.changed.clear()
            await asyncio.sleep(EXPIRY_PAUSE_SECONDS)
            await self.timer.wait()


@dataclass(eq=False, repr=False, slots=True)
class FileCleanup:
    """Deletes files in the background, one after the other."""

    side: Messenger
    stored: FileStore | None = None
    workspaces: Workspaces | None = None
    again_seconds: float = AGAIN_SECONDS
    _waiting: deque[ReceivedFile] = field(
        default_factory=lambda: deque(maxlen=MAX_WAITING), init=False
    )
    _more: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def files_of(self, *messages: IncomingMessage | ReceivedMessage) -> None:
        """Delete the files of messages on the Signal side."""
        self.add(file for message in messages for file in message.files)

    def add(self, files: Iterable[ReceivedFile]) -> None:
        """Delete files on the Signal side."""
        self._waiting.extend(files)
        if self._waiting:
            self._more.set()

    def look(self) -> None:
        """Delete files in workspaces whose messages are gone."""
        self._more.set()

    async def run(self) -> None:
        """Delete files until cancelled; begin with leftovers in workspaces of earlier processes."""
        self.look()
        while True:
            await self._more.wait()
            self._more.clear()
            if not await self._delete_from_workspaces():
                asyncio.get_running_loop().call_later(self.again_seconds, self.look)
            while self._waiting:
                await discard(self.side, [self._waiting.popleft()], DISCARD_SECONDS)

    async def _delete_from_workspaces(self) -> bool:
        """Delete files whose messages are gone; return whether all are deleted."""
        if self.workspaces is None or self.stored is None:
            return True
        left = 0
        for chat, name in await self.stored.to_delete():
            if await delete_from(self.workspaces, chat, name):
                await self.stored.deleted(chat, name)
            else:
                left += 1
        if left:
            log.warning("file.not_deleted", count=left)
        return not left


async def tend(store: StoreUpkeep, clock: Callable[[], float]) -> None:
    """Purge and shrink the store now and every hour, until cancelled."""
    while True:
        if deleted := await store.purge(int(clock() * 1_000)):
            log.info("store.purged", deleted=deleted)
        if given_back := await store.give_back():
            log.info("store.shrunk", bytes=given_back)
        await asyncio.sleep(EVERY_SECONDS)


async def keep_indexed(search: SearchStore) -> None:
    """Index what was said, some seconds later, until cancelled."""
    while True:
        await asyncio.sleep(INDEX_SECONDS)
        await search.index()


async def tend_folders(folders: Workspaces, retention_days: int) -> None:
    """Delete files of chats as old as the store's retention, but at least an hour old."""
    while True:
        seconds = max(EVERY_SECONDS, retention_days * DAY_SECONDS)
        if deleted := await folders.forget_unused(seconds):
            log.info("workspace.purged", deleted=deleted)
        await asyncio.sleep(EVERY_SECONDS)
