"""Order inside a chat, concurrency across chats.

A chat has a worker while it has work; the worker runs the chat's jobs one after the other and
disappears when the last is done. A slow job in one chat never delays another chat.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from structlog.contextvars import bound_contextvars

from bot.observability import log_ids, metrics
from conversation_store.models import AcceptedMessage, ChatId

MAX_WAITING_IN_CHAT: Final = 100
"""Messages that one chat may have waiting; the next one is refused in words."""

MAX_WAITING: Final = 20_000
"""Jobs that wait in all chats together; above it whoever brings more has to wait."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work in a chat.

    Attributes:
        run: does it; handles every failure but those that end the process.
        accepted: the message that it answers; None for work that cannot be dropped.
        joins: it is a piece of a conversation, which may be answered together with its neighbours.
    """

    run: Callable[[], Awaitable[object]]
    accepted: AcceptedMessage | None = None
    joins: bool = False


class Mailboxes:
    """One queue for each chat that has work.

    Args:
        tasks: where the workers live; a job that raises ends this group.
        lane: as what the waiting jobs are counted.
    """

    def __init__(
        self, tasks: asyncio.TaskGroup, *, lane: Literal["ordinary", "urgent"] = "ordinary"
    ) -> None:
        self._tasks = tasks
        self._gauge = metrics.WAITING_JOBS.labels(lane)
        self._waiting: dict[str, deque[Job]] = {}
        self._arrivals: dict[str, asyncio.Event] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._count = 0
        self._winding_down = False
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, chat: ChatId, job: Job) -> None:
        """Queue a job behind the others of its chat; waits while there is no room at all."""
        await self.room()
        self.add(chat, job)

    async def room(self) -> None:
        """Wait while there is no room at all."""
        while self._count >= MAX_WAITING and not self._winding_down:
            self._room.clear()
            await self._room.wait()

    def add(self, chat: ChatId, job: Job) -> None:
        """Queue a job that is in memory anyway, room or not."""
        if self._winding_down:
            return
        self._count += 1
        self._gauge.inc()
        queue = self._waiting.get(chat)
        if queue is not None:
            queue.append(job)
            if chat in self._arrivals:
                self._arrivals[chat].set()
            return
        self._waiting[chat] = deque([job])
        worker = self._tasks.create_task(self._work(chat))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def divide(self, chat: ChatId) -> None:
        """Let nothing that comes join what a chat has in work or waiting.

        What is written after a `!stop` is no part of the turn that it ends, however closely it
        follows.
        """
        if chat in self._waiting:
            self.add(chat, Job(_nothing))

    def wind_down(self) -> None:
        """Begin no further job, and let nobody wait for room: the next start does the rest."""
        self._winding_down = True
        self._room.set()

    @property
    def winding_down(self) -> bool:
        """Whether the process is about to end."""
        return self._winding_down

    def is_full(self, chat: ChatId) -> bool:
        """Whether a chat has as many jobs waiting as it may."""
        return len(self._waiting.get(chat, ())) >= MAX_WAITING_IN_CHAT

    def drop(self, chat: ChatId, *, before: int) -> tuple[AcceptedMessage, ...]:
        """Remove the waiting messages of a chat that came before one, and return them."""
        waiting = [job.accepted for job in self._waiting.get(chat, ()) if job.accepted is not None]
        dropped = tuple(accepted for accepted in waiting if accepted.id < before)
        for accepted in dropped:
            self.replace(chat, accepted.id, None)
        return dropped

    def piece(self, chat: ChatId, inbox_id: int) -> AcceptedMessage | None:
        """Return a message that waits in a chat."""
        place = self._place(chat, inbox_id)
        return None if place is None else self._waiting[chat][place].accepted

    def replace(self, chat: ChatId, inbox_id: int, job: Job | None) -> bool:
        """Put a job in the place of the one that answers a message, or none; False without one."""
        place = self._place(chat, inbox_id)
        if place is None:
            return False
        queue = self._waiting[chat]
        if job is not None:
            queue[place] = job
        else:
            del queue[place]
            self._taken(1)
        return True

    def take_joining(
        self, chat: ChatId, joins: Callable[[AcceptedMessage], bool]
    ) -> AcceptedMessage | None:
        """Take the chat's next message out, if it is a piece that joins; its job does not run."""
        queue = self._waiting.get(chat)
        if not queue or not queue[0].joins:
            return None
        accepted = queue[0].accepted
        if accepted is None or not joins(accepted):
            return None
        queue.popleft()
        self._taken(1)
        return accepted

    def has_waiting(self, chat: ChatId) -> bool:
        """Whether anything waits in a chat, behind the job that runs."""
        return bool(self._waiting.get(chat))

    async def arrival(self, chat: ChatId, *, seconds: float) -> bool:
        """Wait up to `seconds` for another job in a chat that is busy; return whether one came."""
        arrived = self._arrivals[chat] = asyncio.Event()
        try:
            # Not `wait_for`: of a cancellation that comes together with a job, it tells nobody.
            async with asyncio.timeout(seconds):
                await arrived.wait()
        except TimeoutError:
            pass
        finally:
            del self._arrivals[chat]
        return arrived.is_set()

    def _place(self, chat: ChatId, inbox_id: int) -> int | None:
        for place, job in enumerate(self._waiting.get(chat, ())):
            if job.accepted is not None and job.accepted.id == inbox_id:
                return place
        return None

    async def drain(self) -> None:
        """Wait until no job runs; after `wind_down`, those that wait do not count."""
        while self._workers:
            await asyncio.wait(self._workers)

    def cancel(self) -> None:
        """Interrupt every chat where it is; the store knows where to go on."""
        for worker in self._workers:
            worker.cancel()

    async def _work(self, chat: ChatId) -> None:
        queue = self._waiting[chat]
        try:
            # Whatever is logged on the way says which chat it is for.
            with bound_contextvars(chat=log_ids.chat(chat)):
                while queue and not self._winding_down:
                    job = queue.popleft()
                    self._taken(1)
                    await job.run()
        finally:
            del self._waiting[chat]
            self._taken(len(queue))

    def _taken(self, jobs: int) -> None:
        self._count -= jobs
        self._gauge.dec(jobs)
        if self._count < MAX_WAITING:
            self._room.set()


async def _nothing() -> None:
    """Do the work of a job that only stands between others."""
