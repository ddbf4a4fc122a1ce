"""A few sandboxed processes, started when needed, kept warm, replaced when lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import structlog

from tools.errors import ToolError, ToolTimeout
from tools.sandbox.protocol import ReplyKind
from tools.sandbox.worker import STOP_SECONDS, Reply, Worker, WorkerDied

CALL_SECONDS: Final = 2.0
QUEUE_SECONDS: Final = 6.0
_WORKERS: Final = 2  # so that a call that hangs does not stop the others
_ATTEMPTS: Final = 2  # a process may have been killed from outside since its last call

_log = structlog.get_logger()


class SandboxBug(Exception):
    """The code inside the sandbox failed in a way that it should not; details are in the log."""


class Sandbox:
    """Answers texts with texts, in processes that may hang, swell or die without harm.

    What runs inside must have no effects: a call whose process is lost is made once more.

    Args:
        module: calls `tools.sandbox.child.serve` when run.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._slots = asyncio.Semaphore(_WORKERS)
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed = True
        for worker in self._workers:
            worker.kill()
        async with AsyncExitStack() as slots:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    for _ in range(_WORKERS):  # calls that were under way clear theirs away
                        await slots.enter_async_context(self._slots)
            for worker in self._idle:
                await worker.stop()

    async def call(self, text: str) -> str:
        """Have one request answered.

        Raises:
            ToolError: what the code inside says is wrong, or there is no process for it.
            ToolTimeout: it took longer than CALL_SECONDS; its process is gone.
            SandboxBug: the code inside failed unexpectedly.
        """
        for _ in range(_ATTEMPTS):
            try:
                reply = await self._attempt(text)
            except WorkerDied:
                _log.warning("sandbox.worker_lost")
            else:
                return _result(reply)
        raise ToolError("This could not be worked out: its process ended before it was done.")

    async def _attempt(self, text: str) -> Reply:
        async with self._worker() as worker:
            try:
                return await worker.ask(text, timeout_seconds=CALL_SECONDS)
            except TimeoutError:
                _log.warning("sandbox.worker_stopped", reason="timeout", seconds=CALL_SECONDS)
                raise ToolTimeout(
                    f"This took over {CALL_SECONDS:g} seconds and was stopped."
                ) from None

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Worker]:
        """Lend a worker; if anything goes wrong with it, it is stopped and never lent again."""
        async with self._slot():
            worker = await self._warm_or_new()
            try:
                yield worker
            except BaseException:
                await self._discard(worker)
                raise
            self._idle.append(worker)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise ToolError("Too much is being worked out right now; try again.") from None
        try:
            yield
        finally:
            self._slots.release()

    async def _warm_or_new(self) -> Worker:
        if self._closed:
            raise ToolError("The program is stopping.")
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await self._discard(worker)
        try:
            worker = await Worker.start(self._module)
        except TimeoutError:
            raise ToolError("No process for this could be started in time; try again.") from None
        self._workers.add(worker)
        _log.debug("sandbox.worker_started", pid=worker.pid)
        return worker

    async def _discard(self, worker: Worker) -> None:
        await worker.stop()
        self._workers.discard(worker)


def _result(reply: Reply) -> str:
    match reply.kind:
        case ReplyKind.RESULT:
            return reply.text
        case ReplyKind.ERROR:
            raise ToolError(reply.text)
        case _:
            _log.error("sandbox.bug", error=reply.text, where=reply.where)
            raise SandboxBug
