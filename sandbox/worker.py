"""One sandboxed process, seen from the bot: start, ask, stop."""

import asyncio
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field

from sandbox.limits import Limits
from sandbox.protocol import HEAD_BYTES, MAX_PLACES, TICKET_BYTES, ReplyKind
from sandbox.walls import Wall

START_SECONDS: Final = 8.0
STOP_SECONDS: Final = 2.0
ENDING_SECONDS: Final = 0.5
"""From the end of the process inside to that of the one outside, which tells how it ended."""
_READ_BYTES: Final = 65_536

log = structlog.get_logger()


class WorkerDied(Exception):
    """The process is gone, or no longer keeps to the protocol."""


class WorkerEscaping(WorkerDied):
    """The kernel ended the process, which had asked for something that no honest code asks for."""


Place = Annotated[str, Field(pattern=r"^[A-Za-z0-9_<>]{1,80}(:\d{1,7})?$")]
"""A function and a line, or a wall: a process that was taken over must not write into the log."""


class _Head(BaseModel):
    """The first line of a reply; the process is not trusted to be well behaved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ticket: str
    kind: ReplyKind
    size: Annotated[int, Field(ge=0)]
    where: Annotated[tuple[Place, ...], Field(max_length=MAX_PLACES)]


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """What the process has replied: `text` and `where` may be anything within their bounds."""

    ticket: str
    kind: ReplyKind
    text: str
    where: tuple[str, ...]


class Worker:
    """A process behind walls, with an empty environment and a session of its own.

    One request at a time. After a call that did not return a reply it must be stopped.
    """

    missing_walls: frozenset[Wall] = frozenset()
    """What this machine lacks, as the process said before it read anything from outside."""

    def __init__(self, process: asyncio.subprocess.Process, *, reply_bytes: int) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a worker needs pipes")
        self._process = process
        self._requests = process.stdin
        self._replies = process.stdout
        self._reply_bytes = reply_bytes
        self._started_at = time.monotonic()
        self._rest: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, module: str, limits: Limits) -> Self:
        """Start a module that calls `sandbox.child.serve`; return when its walls stand.

        Raises:
            WorkerDied: it ended instead.
            TimeoutError: it took longer than START_SECONDS.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", module, limits.as_argument(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # a traceback could quote what a person wrote
            cwd="/",
            env={},
            start_new_session=True,
            limit=HEAD_BYTES,  # and not much more is read ahead of a request
        )  # fmt: skip
        worker = cls(process, reply_bytes=limits.reply_bytes)
        try:
            async with asyncio.timeout(START_SECONDS):
                ready = await worker._reply()
            worker.missing_walls = frozenset(Wall(name) for name in ready.where)
        except BaseException:
            await worker.stop()
            raise
        return worker

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def age_seconds(self) -> float:
        """The time since it was started."""
        return time.monotonic() - self._started_at

    @property
    def alive(self) -> bool:
        """Whether the process has not ended, as far as is known."""
        return self._process.returncode is None

    def rest(self, seconds: float) -> None:
        """Kill the process, whatever it does, unless it is asked again within that time."""
        self._rest = asyncio.get_running_loop().call_later(seconds, self.kill)

    async def ask(self, text: bytes, *, timeout_seconds: float) -> WorkerReply:
        """Send a request, whose text is given as JSON, and return its reply.

        Raises:
            WorkerDied: the process ended; WorkerEscaping where the kernel ended it for a deed.
            TimeoutError: no reply came in time.
        """
        self._end_rest()
        ticket = secrets.token_hex(TICKET_BYTES)
        async with asyncio.timeout(timeout_seconds):
            self._requests.write(b'["%s", %s]\n' % (ticket.encode(), text))
            with suppress(ConnectionError):  # there will be no reply, which says it all
                await self._requests.drain()
            reply = await self._reply()
        if reply.ticket != ticket:
            raise WorkerDied
        return reply

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.cancel()

    def kill(self) -> None:
        """End the process and its group, whatever it does; it has nothing to tidy up.

        Not by `Process.kill`: that may collect the exit status before asyncio's watcher can.
        """
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End the process and clear it away, unless the kernel takes longer than STOP_SECONDS."""
        self._end_rest()
        self.kill()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while await self._replies.read(_READ_BYTES):
                    pass  # asyncio keeps a process until its pipes have been read to their ends
                await self._process.wait()
        except TimeoutError:
            log.warning("sandbox.not_reaped", pid=self.pid)

    async def _end(self) -> None:
        """Wait for the end of a process that has closed its pipe, and clear it away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_SECONDS):
                await self._process.wait()
        await self.stop()

    async def _reply(self) -> WorkerReply:
        try:
            head = _Head.model_validate_json(await self._replies.readuntil())
            if head.size > self._reply_bytes:
                raise WorkerDied
            text = (await self._replies.readexactly(head.size)).decode()
        except EOFError as error:
            await self._end()
            escaping = self._process.returncode == -signal.SIGSYS
            raise (WorkerEscaping if escaping else WorkerDied) from error
        except (asyncio.LimitOverrunError, ConnectionError, ValueError) as error:
            raise WorkerDied from error
        return WorkerReply(head.ticket, head.kind, text, head.where)
