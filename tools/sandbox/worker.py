"""One sandboxed process, seen from the bot: start, ask, stop."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import Final, Self

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from tools.sandbox.limits import Limits
from tools.sandbox.protocol import ReplyKind

START_SECONDS: Final = 8.0
STOP_SECONDS: Final = 2.0
_READ_BYTES: Final = 65_536

_log = structlog.get_logger()


class WorkerDied(Exception):
    """The process is gone, or no longer keeps to the protocol."""


class Reply(BaseModel):
    """One line from the process, which is not trusted to be well behaved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ReplyKind
    text: str
    where: tuple[str, ...]


class Worker:
    """A process with an empty environment, no files but its pipes, and a session of its own.

    One request at a time. After a call that did not return a reply it must be stopped.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a worker needs pipes")
        self._process = process
        self._requests = process.stdin
        self._replies = process.stdout

    @classmethod
    async def start(cls, module: str, limits: Limits) -> Self:
        """Start a module that calls `tools.sandbox.child.serve`; return when its limits hold.

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
            limit=limits.line_bytes,
        )  # fmt: skip
        worker = cls(process)
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker._reply()
        except BaseException:
            await worker.stop()
            raise
        return worker

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not ended, as far as is known."""
        return self._process.returncode is None

    async def ask(self, request: bytes, *, timeout_seconds: float) -> Reply:
        """Send a request, which is one line, and return its reply.

        Raises:
            WorkerDied: the process ended.
            TimeoutError: no reply came in time.
        """
        async with asyncio.timeout(timeout_seconds):
            self._requests.write(request)
            with suppress(ConnectionError):  # there will be no reply, which says it all
                await self._requests.drain()
            return await self._reply()

    def kill(self) -> None:
        """End the process and its group, whatever it does; it has nothing to tidy up.

        Not by `Process.kill`: that may collect the exit status before asyncio's watcher can.
        """
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End the process and clear it away, unless the kernel takes longer than STOP_SECONDS."""
        self.kill()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while await self._replies.read(_READ_BYTES):
                    pass  # asyncio keeps a process until its pipes have been read to their ends
                await self._process.wait()
        except TimeoutError:
            _log.warning("sandbox.not_reaped", pid=self.pid)

    async def _reply(self) -> Reply:
        try:
            line = await self._replies.readuntil()
            return Reply.model_validate_json(line)
        except (EOFError, asyncio.LimitOverrunError, ConnectionError, ValidationError) as error:
            raise WorkerDied from error
