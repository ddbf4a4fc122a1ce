"""Order inside a chat, concurrency across chats.

A chat has a worker while it has work; the worker runs the chat's jobs one after the other and
disappears when the last is done. A slow job in one chat never delays another chat.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from bot.observability import metrics

MAX_WAITING_IN_CHAT: Final = 100
"""Messages that one chat may have waiting; the next one is refused in words."""

MAX_WAITING: Final = 20_000
"""Jobs that wait in all chats together; above it whoever brings more has to wait."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work in a chat.

    Attributes:
        run: does it; handles every failure but those that end the process.
        inbox_id: the accepted message that it answers; None for work that cannot be dropped.
    """

    run: Callable[[], Awaitable[None]]
    inbox_id: int | None = None


class Mailboxes:
    """One queue for each chat that has work.

    Args:
        tasks: where the workers live; a job that raises ends this group.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._waiting: dict[str, deque[Job]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._count = 0
        self._winding_down = False
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, chat: str, job: Job) -> None:
        """Queue a job behind the others of its chat; waits while there is no room at all."""
        while self._count >= MAX_WAITING and not self._winding_down:
            self._room.clear()
            await self._room.wait()
        self.add(chat, job)

    def add(self, chat: str, job: Job) -> None:
        """Queue a job that is in memory anyway, room or not."""
        if self._winding_down:
            return
        self._count += 1
        metrics.WAITING_JOBS.inc()
        queue = self._waiting.get(chat)
        if queue is not None:
            queue.append(job)
            return
        self._waiting[chat] = deque([job])
        worker = self._tasks.create_task(self._work(chat))
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    def wind_down(self) -> None:
        """Begin no further job, and let nobody wait for room: the next start does the rest."""
        self._winding_down = True
        self._room.set()

    def is_full(self, chat: str) -> bool:
        """Whether a chat has as many jobs waiting as it may."""
        return len(self._waiting.get(chat, ())) >= MAX_WAITING_IN_CHAT

    def drop(self, chat: str, *, before: int) -> tuple[int, ...]:
        """Remove the waiting messages of a chat that came before one; return their inbox ids."""
        queue = self._waiting.get(chat)
        if queue is None:
            return ()
        waiting = [job.inbox_id for job in queue if job.inbox_id is not None]
        dropped = tuple(inbox_id for inbox_id in waiting if inbox_id < before)
        kept = [job for job in queue if job.inbox_id not in dropped]
        queue.clear()
        queue.extend(kept)
        self._taken(len(dropped))
        return dropped

    async def drain(self) -> None:
        """Wait until no job runs; after `wind_down`, those that wait do not count."""
        while self._workers:
            await asyncio.wait(self._workers)

    def cancel(self) -> None:
        """Interrupt every chat where it is; the store knows where to go on."""
        for worker in self._workers:
            worker.cancel()

    async def _work(self, chat: str) -> None:
        queue = self._waiting[chat]
        try:
            while queue and not self._winding_down:
                job = queue.popleft()
                self._taken(1)
                await job.run()
        finally:
            del self._waiting[chat]
            self._taken(len(queue))

    def _taken(self, jobs: int) -> None:
        self._count -= jobs
        metrics.WAITING_JOBS.dec(jobs)
        if self._count < MAX_WAITING:
            self._room.set()
