"""Runs untrusted programs in jails, and returns how they ended."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Literal
from weakref import WeakValueDictionary

import structlog

from tools.sandbox import seccomp
from tools.sandbox.errors import ToolUnavailable, WorkError
from tools.sandbox.jail import bubblewrap, landlocked
from tools.sandbox.jail.calls import ABSENT, IN_NAMESPACES
from tools.sandbox.jail.program import PLACES, READABLE, SHARE, Bounds, Ended, Program, Stopped
from tools.sandbox.jail.watch import (
    LookAtFolder,
    is_running,
    processes_in_session,
    processes_of,
    watch_folder,
    watch_processes,
)
from tools.sandbox.syscalls import architecture

END_SECONDS: Final = 5.0
"""Longest time between the end of a jail's first process and that of the last one."""
PLACE_SECONDS: Final = 30.0
_TRIED_SECONDS: Final = 5.0
_BY_SIGNAL: Final = 128
_ROUNDS: Final = 5
_STOP_SECONDS: Final = 1.0
_STOP_LOOK_SECONDS: Final = 0.0005
_NOTHING: Final = (sys.executable, "-I", "-S", "-c", "")
_OUTSIDE_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
STREAM_BYTES: Final = 2**18
"""A stream holds twice as much until it is read."""
_FLOOD_PAUSE_SECONDS: Final = 0.01
"""Between two reads of a flood, which slows down its writer to some 50 MB a second."""

log = structlog.get_logger()


Kind = Literal["bubblewrap", "Landlock"]
"""The walls of a jail, by the name that operators know."""


class Jail:
    """Runs programs in jails, of the first of some kinds that works here.

    Args:
        kinds: from the best to the last.
        readable: files and folders that programs may read and run besides the system's.

    Attributes:
        refused: reasons why better kinds do not work here; known once the kind is.
    """

    def __init__(
        self,
        kinds: Sequence[Kind] = ("bubblewrap", "Landlock"),
        readable: Sequence[Path] = READABLE,
    ) -> None:
        self.refused: tuple[str, ...] = ()
        self._kinds = kinds
        self._readable = readable
        self._places = asyncio.Semaphore(PLACES)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._threads = ThreadPoolExecutor(PLACES, "jail")
        self._trying = asyncio.Lock()
        self._kind: Kind | None = None

    async def run(
        self,
        program: Program,
        bounds: Bounds,
        look_at_folder: LookAtFolder | None = None,
        person: str = "",
    ) -> Ended:
        """Run a program to its end, or until it exceeds a bound or this is cancelled.

        A person has at most half of the places, so that the others get theirs.

        ToolUnavailable if this machine allows no jail; WorkError if too many programs run already.
        """
        kind = await self.kind(program.folder)
        share = self._shares.setdefault(person, asyncio.Semaphore(SHARE))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(PLACE_SECONDS):
                    await held.enter_async_context(share)
                    await held.enter_async_context(self._places)
            except TimeoutError:
                raise WorkError("Too many commands run right now; try again.") from None
            return await self._run(kind, program, bounds, look_at_folder)

    async def kind(self, folder: Path) -> Kind:
        """Return the best kind of jail that works here; ToolUnavailable says why none does."""
        async with self._trying:
            if self._kind is None:
                self._kind = await self._tried(folder)
            return self._kind

    async def _tried(self, folder: Path) -> Kind:
        reasons = []
        for kind in self._kinds:
            program, bounds = Program(_NOTHING, folder), Bounds(seconds=_TRIED_SECONDS)
            try:
                ended = await self._run(kind, program, bounds)
            except ToolUnavailable as error:
                reasons.append(f"{kind}: {error}")
                continue
            if ended.exit_code == 0:
                if reasons:
                    log.info("jail.kind", kind=kind)
                self.refused = tuple(reasons)
                return kind
            said = ended.errors.strip().splitlines()
            reasons.append(f"{kind}: {said[0].removeprefix('bwrap: ') if said else 'refused'}")
        raise ToolUnavailable(
            f"Commands cannot be walled off on this machine ({'; '.join(reasons)}). Install"
            " bubblewrap and allow user namespaces, or use a kernel with Landlock (6.2 or later)."
        )

    async def _run(
        self,
        kind: Kind,
        program: Program,
        bounds: Bounds,
        look_at_folder: LookAtFolder | None = None,
    ) -> Ended:
        starting = asyncio.ensure_future(self._start(kind, program, bounds))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Half a start would leave unknown processes.
            process = await starting
            await self._end(process)
            with suppress(TimeoutError):  # otherwise its outputs would stay open
                async with asyncio.timeout(END_SECONDS):
                    await process.communicate()
            raise
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("a process was started without its outputs")
        output, errors = Output(bounds.output_bytes), Output(bounds.output_bytes)
        stopped: Stopped | None = None
        async with asyncio.TaskGroup() as tasks:
            watching = [
                tasks.create_task(
                    watch_processes(process.pid, program.folder, bounds, self._threads)
                )
            ]
            if look_at_folder is not None:
                watching.append(tasks.create_task(watch_folder(look_at_folder)))
            ending = [
                tasks.create_task(_ended(process)),
                tasks.create_task(output.read(process.stdout)),
                tasks.create_task(errors.read(process.stderr)),
            ]
            try:
                done, _ = await asyncio.wait(
                    [ending[0], *watching],
                    timeout=bounds.seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                exceeded = [task.result() for task in watching if task.done()]
                stopped = exceeded[0] if exceeded else None if done else "time"
            finally:
                for look in watching:
                    look.cancel()
                await self._end(process)
                await asyncio.wait(ending, timeout=END_SECONDS)
                for task in ending:
                    task.cancel()
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        code = _BY_SIGNAL - code if code < 0 else code
        return Ended(code, output.text(), errors.text(), stopped)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End everything that a jail runs."""
        try:
            if process.stdin is not None:  # the supervisor ends everything when its input ends
                process.stdin.close()
                with suppress(TimeoutError):
                    async with asyncio.timeout(END_SECONDS):
                        await _ended(process)
            kill = _kill if process.returncode is None else _kill_session
            async with asyncio.timeout(END_SECONDS):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._threads, kill, process.pid)
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            log.error("jail.not_ended")

    async def _start(
        self, kind: Kind, program: Program, bounds: Bounds
    ) -> asyncio.subprocess.Process:
        """Start a jail and return its first process, which ends when all have ended."""
        is_told = kind == "Landlock"
        contents = [program.script.encode(errors="replace")]
        try:
            contents += [] if is_told else [_filter(), bubblewrap.PEOPLE]
            command_line = (landlocked if is_told else bubblewrap).command_line
            with _readable(*contents) as given:
                return await asyncio.create_subprocess_exec(
                    *command_line(program, bounds, self._readable, given),
                    stdin=asyncio.subprocess.PIPE if is_told else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env={"PATH": _OUTSIDE_PATH},
                    pass_fds=given,
                    start_new_session=True,
                    limit=STREAM_BYTES,
                )
        except (FileNotFoundError, PermissionError) as error:
            raise ToolUnavailable(f"{error.filename} cannot be run: {error.strerror}") from None
        except OSError as error:  # no process or no descriptor is left, which passes
            raise WorkError(f"The command was not started: {error.strerror}. Try again.") from None


class Output:
    """Keeps the first and the last bytes of a stream, and counts those between."""

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes // 2
        self._first = bytearray()
        self._last = bytearray()
        self._between = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read a stream to its end."""
        while data := await stream.read(2 * STREAM_BYTES):
            free = self._room - len(self._first)
            self._first += data[:free]
            self._last += data[free:]
            if (surplus := len(self._last) - self._room) > 0:
                self._between += surplus
                del self._last[:surplus]
                await asyncio.sleep(_FLOOD_PAUSE_SECONDS)

    def text(self) -> str:
        """Return the bytes as text, with a note in the middle if some are left out."""
        if not self._between:
            return (self._first + self._last).decode(errors="replace")
        first = self._first.decode(errors="replace")
        last = self._last.decode(errors="replace")
        return f"{first}\n[… {self._between:,} bytes are left out here …]\n{last}"


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Return when a process has ended, even if others still hold its outputs."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _kill(first: int) -> None:
    """Kill a jail's first process and its descendants, then the rest of its session.

    The first process is stopped before it is killed: children of a dead process cannot be found,
    have left its session, and may not have asked the kernel yet to end with it.
    """
    with suppress(ProcessLookupError):
        os.kill(first, signal.SIGSTOP)
        give_up_at = time.monotonic() + _STOP_SECONDS
        while is_running(first) and time.monotonic() < give_up_at:
            time.sleep(_STOP_LOOK_SECONDS)
        for process in reversed(list(processes_of(first))):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    _kill_session(first)


def _kill_session(first: int) -> None:
    """Kill the rest of a jail's session, by its first process, which has ended.

    It looks more than once, since programs without namespaces may start others in the meantime.
    """
    for _ in range(_ROUNDS):
        left = list(processes_in_session(first))
        for process in left:
            with suppress(OSError):  # it has ended; in its group, no new one escapes
                os.killpg(os.getpgid(process), signal.SIGKILL)
        if not left:
            break


@contextmanager
def _readable(*contents: bytes) -> Iterator[list[int]]:
    """Yield descriptors from which texts can be read, in memory."""
    with ExitStack() as files:
        opened = []
        for content in contents:
            file = files.enter_context(os.fdopen(os.memfd_create("jail"), "w+b", buffering=0))
            file.write(content)
            file.seek(0)
            opened.append(file.fileno())
        yield opened


@cache
def _filter() -> bytes:
    try:
        steps = seccomp.program(architecture(), IN_NAMESPACES, absent=ABSENT, kills=False)
    except OSError as error:
        raise ToolUnavailable(str(error)) from None
    return seccomp.as_bytes(steps)
