"""Sandboxed processes, seen from the bot: started when needed, kept warm, replaced when lost."""

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict
from typing import Annotated, Final, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field

from tools.sandbox.errors import SandboxBug, ToolUnavailable, WorkError, WorkLost, WorkTimeout
from tools.sandbox.limits import (
    CALL_SECONDS,
    ENVELOPE_BYTES,
    HEAD_BYTES,
    MAX_PLACES,
    TICKET_BYTES,
    Limits,
    ReplyKind,
)
from tools.sandbox.walls import AROUND_A_FOLDER, ESSENTIAL, Wall, lacking_here

log = structlog.get_logger()


class SandboxPolicy:
    """Knows which walls are missing here, and whether that stops sandboxes."""

    def __init__(self, *, required: bool = False) -> None:
        self._required = required
        self._missing: frozenset[Wall] = frozenset()
        self.note(lacking_here())

    @property
    def missing(self) -> tuple[Wall, ...]:
        """The walls that are known to be missing, in alphabetical order."""
        return tuple(sorted(self._missing))

    def note(self, missing: Iterable[Wall]) -> None:
        """Remember missing walls, and log each once."""
        if new := set(missing) - self._missing:
            self._missing |= new
            say = log.warning if ESSENTIAL & new else log.info
            say("sandbox.wall_missing", kind=", ".join(sorted(new)))

    def require_walls(self, *, around_folder: bool = False) -> None:
        """Raise ToolUnavailable if a wall is missing that the operator, or a folder, demands."""
        lacking = ", ".join(sorted(self._missing & ESSENTIAL))
        if lacking and self._required:
            raise ToolUnavailable(
                "This needs a sandbox, and this machine cannot wall one off: it lacks"
                f" {lacking} (SANDBOX=required)."
            )
        why = f"lacks {lacking}" if lacking else ""
        if not lacking and self._missing >= AROUND_A_FOLDER:
            why = "allows neither Landlock (Linux 5.19 or later) nor user namespaces"
        if why and around_folder:
            raise ToolUnavailable(f"This machine cannot wall off a folder: it {why}.")


START_SECONDS: Final = 8.0
STOP_SECONDS: Final = 2.0
ENDING_SECONDS: Final = 0.5
"""The outer process ends a little after the inner one; its status shows how that ended."""
QUEUE_SECONDS: Final = 6.0
"""A call waits for a place until another call times out, and this much longer."""
LIFE_SECONDS: Final = 1_800.0
"""After that time a process gets no more requests, so an attacker inside stops reading along."""
_WORKERS: Final = 2  # a call that hangs must not stop the others
_ATTEMPTS: Final = 2  # a process may have ended or been killed since its last call
_READ_BYTES: Final = 65_536
_MAX_ERROR_CHARACTERS: Final = 2_000
_MAX_NAME_CHARACTERS: Final = 64
_SMALL: Final = Limits()

__all__ = ["CALL_SECONDS", "QUEUE_SECONDS", "Limits", "Sandbox"]


class WorkerDied(Exception):
    """The process has ended or broken the protocol."""


class WorkerEscaping(WorkerDied):
    """The kernel ended the process for a call that no honest code makes."""


Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9_<>]{1,80}(:\d{1,7})?$")]
"""A function and a line, or a wall. An attacker inside must not write into the log."""


class _Head(BaseModel):
    """The first line of a reply, which may come from an attacker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ticket: str
    kind: ReplyKind
    size: Annotated[int, Field(ge=0)]
    where: Annotated[tuple[Place, ...], Field(max_length=MAX_PLACES)]


class Worker:
    """A process behind walls, with an empty environment and a session of its own.

    It takes one request at a time. After a call that returned no reply it must be stopped.

    Attributes:
        missing_walls: of this machine, as the process said before it read anything from outside.
    """

    def __init__(self, process: asyncio.subprocess.Process, *, reply_bytes: int) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a worker needs pipes")
        self._process = process
        self._requests = process.stdin
        self._replies = process.stdout
        self._reply_bytes = reply_bytes
        self._started_at = time.monotonic()
        self._rest: asyncio.TimerHandle | None = None
        self.missing_walls: frozenset[Wall] = frozenset()

    @classmethod
    async def start(cls, module: str, limits: Limits) -> Self:
        """Start a module that calls `tools.sandbox.child.serve`; return when its walls stand.

        WorkerDied if it ends instead; TimeoutError after START_SECONDS.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", module, json.dumps(asdict(limits))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # a traceback could quote what a person wrote
            cwd="/",
            env={},
            start_new_session=True,
            limit=HEAD_BYTES,  # and not much more is read ahead of a request
        )
        worker = cls(process, reply_bytes=limits.reply_bytes)
        try:
            async with asyncio.timeout(START_SECONDS):
                ready, _ = await worker._reply()
            worker.missing_walls = frozenset(Wall(name) for name in ready.where)
        except BaseException:
            await worker.stop()
            raise
        return worker

    @property
    def is_fresh(self) -> bool:
        """Whether the process is alive, as far as is known, and young enough for a request."""
        is_young = time.monotonic() - self._started_at < LIFE_SECONDS
        return is_young and self._process.returncode is None

    def rest(self, seconds: float) -> None:
        """Kill the process unless it gets a request within that time."""
        self._rest = asyncio.get_running_loop().call_later(seconds, self.kill)

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()

    async def ask(self, text: bytes, *, timeout_seconds: float) -> tuple[_Head, str]:
        """Send a request with a text in JSON, and return its reply.

        WorkerDied if the process ends; WorkerEscaping if the kernel ends it for a system call.
        """
        self._end_rest()
        ticket = secrets.token_hex(TICKET_BYTES)
        async with asyncio.timeout(timeout_seconds):
            self._requests.write(b'["%s", %s]\n' % (ticket.encode(), text))
            with suppress(ConnectionError):  # there will be no reply, which says it all
                await self._requests.drain()
            reply = await self._reply()
        if reply[0].ticket != ticket:
            raise WorkerDied
        return reply

    def kill(self) -> None:
        """End the process and its group; it has nothing to tidy up.

        Not by `Process.kill`: that may collect the exit status before asyncio's watcher can.
        """
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End the process and clear it away, unless the kernel takes longer than STOP_SECONDS."""
        self._end_rest()
        self.kill()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while await self._replies.read(_READ_BYTES):
                    pass  # asyncio keeps a process until its pipes have been read to the end
                await self._process.wait()
        except TimeoutError:
            log.warning("sandbox.not_reaped", pid=self._process.pid)

    async def _reply(self) -> tuple[_Head, str]:
        try:
            head = _Head.model_validate_json(await self._replies.readuntil())
            if head.size > self._reply_bytes:
                raise WorkerDied
            return head, (await self._replies.readexactly(head.size)).decode()
        except EOFError as error:
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDING_SECONDS):
                    await self._process.wait()
            await self.stop()
            escaping = self._process.returncode == -signal.SIGSYS
            raise (WorkerEscaping if escaping else WorkerDied) from error
        except (asyncio.LimitOverrunError, ConnectionError, ValueError) as error:
            raise WorkerDied from error


class Sandbox:
    """Answers texts with texts, in processes that may hang, swell or die without harm.

    Code inside has no effects, so a call whose process is lost is made once more. Code in a folder
    has effects: one process makes each call once, one after the other.

    Args:
        module: loads everything that it or its libraries need, and then calls
            `tools.sandbox.child.serve`.
        limits: of each process (bytes are sent as Base64).
        policy: the walls that the operator demands; shared by all sandboxes.
    """

    def __init__(
        self, module: str, limits: Limits = _SMALL, *, policy: SandboxPolicy | None = None
    ) -> None:
        self._module = module
        self._limits = limits
        self._policy = policy or SandboxPolicy()
        self._in_folder = limits.folder is not None
        self._places = 1 if self._in_folder else _WORKERS
        self._slots = asyncio.Semaphore(self._places)
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._closed = True
        for worker in self._workers:
            worker.kill()
        async with AsyncExitStack() as slots:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    for _ in range(self._places):  # calls in progress clear their workers away
                        await slots.enter_async_context(self._slots)
            for worker in self._idle:
                await worker.stop()

    @property
    def is_idle(self) -> bool:
        """Whether it has a process that no call uses."""
        return bool(self._idle)

    async def end_idle(self) -> None:
        """End the processes that no call uses; a later call starts a new one."""
        while self._idle:
            await self._discard(self._idle.pop())

    async def call(self, text: str) -> str:
        """Return the answer to a request.

        Raises:
            WorkError: the code inside refuses the request, or no process could answer.
            ToolUnavailable: this machine lacks a wall that the operator or a folder demands.
            WorkTimeout: it took longer than the limit; its process is gone.
            SandboxBug: the code inside failed unexpectedly.
        """
        self._policy.require_walls(around_folder=self._in_folder)
        request = json.dumps(text).encode()
        if len(request) + ENVELOPE_BYTES > self._limits.line_bytes:
            raise WorkError("This is too long to be worked on.")
        seconds = self._limits.call_seconds
        for _ in range(1 if self._in_folder else _ATTEMPTS):
            try:
                async with self._worker() as worker:
                    reply = await worker.ask(request, timeout_seconds=seconds)
                return _result(*reply)
            except TimeoutError:
                log.warning("sandbox.worker_stopped", reason="timeout", seconds=seconds)
                raise WorkTimeout(f"This took over {seconds:g} seconds and was stopped.") from None
            except WorkerEscaping:
                log.error("sandbox.escape_stopped")  # no second try: the request is an attack
                raise WorkError("This tried to break out of its sandbox and was stopped.") from None
            except WorkerDied:
                log.warning("sandbox.worker_lost")
        raise WorkLost("This could not be worked out: its process ended before it was done.")

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Worker]:
        """Lend a worker; stop it if anything goes wrong with it."""
        try:
            async with asyncio.timeout(self._limits.call_seconds + QUEUE_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise WorkError("Too much is being worked out right now; try again.") from None
        try:
            worker = await self._warm_or_new()
            try:
                yield worker
            except BaseException:
                await self._discard(worker)
                raise
            if self._limits.idle_seconds is not None:
                worker.rest(self._limits.idle_seconds)
            self._idle.append(worker)
        finally:
            self._slots.release()

    async def _warm_or_new(self) -> Worker:
        if self._closed:
            raise WorkError("The program is stopping.")
        while self._idle:
            worker = self._idle.pop()
            if worker.is_fresh:
                return worker
            await self._discard(worker)
        try:
            worker = await Worker.start(self._module, self._limits)
        except TimeoutError:
            raise WorkError("No process for this could be started in time; try again.") from None
        self._workers.add(worker)
        self._policy.note(worker.missing_walls)
        try:
            self._policy.require_walls(around_folder=self._in_folder)
        except ToolUnavailable:
            await self._discard(worker)
            raise
        log.debug("sandbox.worker_started")
        return worker

    async def _discard(self, worker: Worker) -> None:
        await worker.stop()
        self._workers.discard(worker)


def _result(head: _Head, text: str) -> str:
    match head.kind:
        case "result":
            return text
        case "error":
            raise WorkError(text[:_MAX_ERROR_CHARACTERS])
        case _:
            error = text[:_MAX_NAME_CHARACTERS]
            # An attacker inside must not write into the log.
            error = error if error.isidentifier() else "unknown"
            log.error("sandbox.bug", error=error, where=head.where)
            raise SandboxBug
