"""A few sandboxed processes, started when needed, kept warm, replaced when lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Final, Self

import structlog

from sandbox.errors import SandboxBug, WorkError, WorkTimeout, WorkUnavailable
from sandbox.limits import CALL_SECONDS, Limits
from sandbox.policy import SandboxPolicy
from sandbox.protocol import ENVELOPE_BYTES, ReplyKind
from sandbox.worker import STOP_SECONDS, Worker, WorkerDied, WorkerEscaping, WorkerReply

QUEUE_SECONDS: Final = 6.0
"""Beyond the time of one call: whoever waits gets a place when calls that hang give theirs up."""
LIFE_SECONDS: Final = 1_800.0
"""A process gets no request after that time: so long at most, what took one over reads along."""
_WORKERS: Final = 2  # so that a call that hangs does not stop the others
_ATTEMPTS: Final = 2  # a process may have ended or been killed since its last call
_IDLE_GRACE_SECONDS: Final = 1.0
"""An honest process ends by itself when it has been idle; any other is ended after this time."""
_MAX_ERROR_CHARACTERS: Final = 2_000
_MAX_NAME_CHARACTERS: Final = 64
_SMALL: Final = Limits()

__all__ = ["CALL_SECONDS", "QUEUE_SECONDS", "Limits", "Sandbox"]

log = structlog.get_logger()


class Sandbox:
    """Answers texts with texts, in processes that may hang, swell or die without harm.

    What runs inside has no effects: a call whose process is lost is made once more. In a folder it
    has some: there, a call is made once, and one process makes one after the other.

    Args:
        module: loads all it needs, also what its libraries would read from disk later, and then
            calls `sandbox.child.serve`.
        limits: what each process may take: memory, time for a call, length of a text (bytes are
            sent as Base64), time without a call. The defaults are for small texts; what parses
            documents needs more of everything.
        policy: what the operator demands of walls; shared by all sandboxes.
    """

    def __init__(
        self, module: str, limits: Limits = _SMALL, *, policy: SandboxPolicy | None = None
    ) -> None:
        self._module = module
        self._limits = limits
        self._policy = policy or SandboxPolicy()
        self._in_folder = limits.folder is not None
        self._places = 1 if self._in_folder else _WORKERS
        self._attempts = 1 if self._in_folder else _ATTEMPTS
        self._slots = asyncio.Semaphore(self._places)
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
                    for _ in range(self._places):  # calls that were under way clear theirs away
                        await slots.enter_async_context(self._slots)
            for worker in self._idle:
                await worker.stop()

    async def call(self, text: str) -> str:
        """Have one request answered.

        Raises:
            WorkError: what the code inside says is wrong, or there is no process for it.
            WorkUnavailable: this machine lacks a wall that the operator demands, or a folder needs.
            WorkTimeout: it took longer than the limit; its process is gone.
            SandboxBug: the code inside failed unexpectedly.
        """
        self._require_walls()
        request = json.dumps(text).encode()
        if len(request) + ENVELOPE_BYTES > self._limits.line_bytes:
            raise WorkError("This is too long to be worked on.")
        for _ in range(self._attempts):
            try:
                reply = await self._attempt(request)
            except WorkerEscaping:
                log.error("sandbox.escape_stopped")  # no second try: the request is an attack
                raise WorkError("This tried to break out of its sandbox and was stopped.") from None
            except WorkerDied:
                log.warning("sandbox.worker_lost")
            else:
                return _result(reply)
        raise WorkError("This could not be worked out: its process ended before it was done.")

    async def _attempt(self, request: bytes) -> WorkerReply:
        seconds = self._limits.call_seconds
        async with self._worker() as worker:
            try:
                return await worker.ask(request, timeout_seconds=seconds)
            except TimeoutError:
                log.warning("sandbox.worker_stopped", reason="timeout", seconds=seconds)
                raise WorkTimeout(f"This took over {seconds:g} seconds and was stopped.") from None

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
            if self._limits.idle_seconds is not None:
                worker.rest(self._limits.idle_seconds + _IDLE_GRACE_SECONDS)
            self._idle.append(worker)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._limits.call_seconds + QUEUE_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise WorkError("Too much is being worked out right now; try again.") from None
        try:
            yield
        finally:
            self._slots.release()

    async def _warm_or_new(self) -> Worker:
        if self._closed:
            raise WorkError("The program is stopping.")
        while self._idle:
            worker = self._idle.pop()
            if worker.alive and worker.age_seconds < LIFE_SECONDS:
                return worker
            await self._discard(worker)
        try:
            worker = await Worker.start(self._module, self._limits)
        except TimeoutError:
            raise WorkError("No process for this could be started in time; try again.") from None
        self._workers.add(worker)
        await self._inspect(worker)
        log.debug("sandbox.worker_started", pid=worker.pid)
        return worker

    async def _inspect(self, worker: Worker) -> None:
        """Turn a worker away that lacks a wall that is demanded."""
        self._policy.note(worker.missing_walls)
        try:
            self._require_walls()
        except WorkUnavailable:
            await self._discard(worker)
            raise

    def _require_walls(self) -> None:
        self._policy.require_walls()
        if self._in_folder:
            self._policy.require_walls_around_a_folder()

    async def _discard(self, worker: Worker) -> None:
        await worker.stop()
        self._workers.discard(worker)


async def survey(policy: SandboxPolicy) -> None:
    """Start a sandbox that does nothing, so that the policy knows every wall that is missing.

    Raises:
        WorkError: no sandbox can be started.
    """
    try:
        worker = await Worker.start("sandbox.idle", _SMALL)
    except (TimeoutError, WorkerDied):
        raise WorkError("No sandbox can be started.") from None
    policy.note(worker.missing_walls)
    await worker.stop()


def _result(reply: WorkerReply) -> str:
    match reply.kind:
        case ReplyKind.RESULT:
            return reply.text
        case ReplyKind.ERROR:
            raise WorkError(reply.text[:_MAX_ERROR_CHARACTERS])
        case _:
            error = reply.text[:_MAX_NAME_CHARACTERS]
            # A process that was taken over must not write what it has read into the log.
            error = error if error.isidentifier() else "unknown"
            log.error("sandbox.bug", error=error, where=reply.where)
            raise SandboxBug
