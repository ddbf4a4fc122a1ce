"""Runs programs that nobody trusts, and returns what came of them."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

import structlog

from sandbox import seccomp
from sandbox.errors import WorkError, WorkUnavailable
from sandbox.jail import bubblewrap, landlocked
from sandbox.jail.calls import ABSENT, IN_NAMESPACES
from sandbox.jail.control_groups import ControlGroup, ControlGroups, Controller
from sandbox.jail.output import STREAM_BYTES, Output
from sandbox.jail.processors import PROCESSORS
from sandbox.jail.program import PLACES, Bounds, Ended, Machine, Network, Program, Stopped
from sandbox.jail.watch import (
    LookAtFolder,
    is_running,
    processes_in_session,
    processes_of,
    watch,
)
from sandbox.syscalls import architecture

END_SECONDS: Final = 5.0
"""From the end of a jail's first process to that of the last one."""
PLACE_SECONDS: Final = 30.0
_TRIED_SECONDS: Final = 5.0
_BY_SIGNAL: Final = 128
_ROUNDS: Final = 5
_STOP_SECONDS: Final = 1.0
_STOP_LOOK_SECONDS: Final = 0.0005
_NOTHING: Final = (sys.executable, "-I", "-S", "-c", "")
_OUTSIDE_PATH: Final = "/usr/local/bin:/usr/bin:/bin"

log = structlog.get_logger()


class Kind(StrEnum):
    """What walls a jail is made of, by the name that operators know it by."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "Landlock"

    @property
    def has_network(self) -> bool:
        """Whether programs in it can be given one."""
        return self is Kind.BUBBLEWRAP


async def nothing_to_see() -> Stopped | None:
    """Look at no folder."""
    return None


@dataclass(frozen=True, slots=True)
class _Started:
    """A jail that runs.

    Attributes:
        process: its first one; it ends when all have ended.
        output: of the program.
        errors: of the program.
        told: whether it ends everything when its standard input ends.
        door: through which it hands out the port of a proxy; None: it has none.
        group: of all its processes; None: there are no groups.
    """

    process: asyncio.subprocess.Process
    output: asyncio.StreamReader
    errors: asyncio.StreamReader
    told: bool
    door: socket.socket | None
    group: ControlGroup | None


class Jail:
    """Runs programs in jails.

    Args:
        machine: what programs find here beside their folders.
        kinds: that are tried, the best one first.
        open_groups: makes control groups, once the first program is to run.
    """

    def __init__(
        self,
        machine: Machine,
        kinds: Sequence[Kind] = tuple(Kind),
        open_groups: Callable[[], Awaitable[ControlGroups | None]] = ControlGroups.open,
    ) -> None:
        self._machine = machine
        self._kinds = kinds
        self._places = asyncio.Semaphore(PLACES)
        self._threads = ThreadPoolExecutor(PLACES, "jail")
        self._trying = asyncio.Lock()
        self._kind: Kind | None = None
        self._open_groups = open_groups
        self._groups: ControlGroups | None = None

    async def run(
        self, program: Program, bounds: Bounds, look_at_folder: LookAtFolder = nothing_to_see
    ) -> Ended:
        """Run a program to its end, or until it takes more than it may.

        When this is cancelled, all that runs is ended first.

        Args:
            program: what is run.
            bounds: what it may take.
            look_at_folder: says when its folder has outgrown a bound.

        Raises:
            WorkUnavailable: there can be no jail on this machine.
            WorkError: too many programs run already.
        """
        kind = await self.kind(program.folder)
        try:
            async with asyncio.timeout(PLACE_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise WorkError("Too many commands run right now; try again.") from None
        try:
            return await self._run(kind, program, bounds, look_at_folder)
        finally:
            self._places.release()

    async def kind(self, folder: Path) -> Kind:
        """Return which kind of jail this machine allows; found out once, by trying.

        Args:
            folder: where it is tried.

        Raises:
            WorkUnavailable: none; says why.
        """
        async with self._trying:
            if self._kind is None:
                self._groups = await self._open_groups()
                self._kind = await self._tried(folder)
            return self._kind

    @property
    def controllers(self) -> frozenset[Controller] | None:
        """What bounds all processes of a jail together; None: it has no control group.

        Known once the kind is.
        """
        return None if self._groups is None else self._groups.controllers

    async def _tried(self, folder: Path) -> Kind:
        reasons = []
        for kind in self._kinds:
            program, bounds = Program(_NOTHING, folder), Bounds(seconds=_TRIED_SECONDS)
            try:
                ended = await self._run(kind, program, bounds, nothing_to_see)
            except WorkUnavailable as error:
                reasons.append(f"{kind}: {error}")
                continue
            if ended.exit_code == 0:
                if reasons:
                    log.info("jail.kind", kind=kind)
                return kind
            said = ended.errors.strip().splitlines()
            reasons.append(f"{kind}: {said[0].removeprefix('bwrap: ') if said else 'refused'}")
        raise WorkUnavailable(
            f"Commands cannot be walled off on this machine ({'; '.join(reasons)}). Install"
            " bubblewrap and allow user namespaces, or use a kernel with Landlock (6.2 or later)."
        )

    async def _run(
        self, kind: Kind, program: Program, bounds: Bounds, look_at_folder: LookAtFolder
    ) -> Ended:
        with PROCESSORS.shared_out(self._threads):
            async with self._group(bounds) as group:
                return await self._run_in(group, kind, program, bounds, look_at_folder)

    @asynccontextmanager
    async def _group(self, bounds: Bounds) -> AsyncIterator[ControlGroup | None]:
        """Provide the group of a jail, and remove it with all that is in it; None: it has none."""
        try:
            group = self._groups.make(bounds) if self._groups is not None else None
        except OSError as error:
            log.warning("jail.no_group", error=type(error).__name__)
            group = None
        try:
            yield group
        finally:
            if group is not None:
                await group.remove()

    async def _run_in(
        self,
        group: ControlGroup | None,
        kind: Kind,
        program: Program,
        bounds: Bounds,
        look_at_folder: LookAtFolder,
    ) -> Ended:
        starting = asyncio.ensure_future(self._start(kind, program, bounds, group))
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Half a start would leave processes that nobody knows of.
            started = await starting
            if started.door is not None:
                started.door.close()
            await self._end(started)
            with suppress(TimeoutError):  # else its outputs would stay open
                async with asyncio.timeout(END_SECONDS):
                    await started.process.communicate()
            raise
        output, errors = Output(bounds.output_bytes), Output(bounds.output_bytes)
        stopped: Stopped | None = None
        async with asyncio.TaskGroup() as tasks:
            reading = [
                tasks.create_task(output.read(started.output)),
                tasks.create_task(errors.read(started.errors)),
            ]
            first, folder = started.process.pid, program.folder
            watching = tasks.create_task(
                watch(first, folder, bounds, look_at_folder, threads=self._threads, group=group)
            )
            ending = tasks.create_task(_ended(started.process))
            serving = tasks.create_task(_serve(started.door, program.network))
            try:
                await asyncio.wait(
                    [ending, watching], timeout=bounds.seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if watching.done():
                    stopped = watching.result()
                elif not ending.done():
                    stopped = Stopped.TIME
                elif group is not None:
                    stopped = group.exceeded()
            finally:
                watching.cancel()
                serving.cancel()
                await self._end(started)
                await asyncio.wait([ending, serving, *reading], timeout=END_SECONDS)
                for task in (ending, *reading):
                    task.cancel()
        code = started.process.returncode
        code = _BY_SIGNAL + signal.SIGKILL if code is None else code
        code = _BY_SIGNAL - code if code < 0 else code
        return Ended(code, output.text(), errors.text(), stopped)

    async def _end(self, started: _Started) -> None:
        """End all that a jail runs."""
        process = started.process
        try:
            if started.group is not None:
                _kill_one(process.pid)  # it may not have entered its group yet
                started.group.kill()
            else:
                await self._end_without_group(process)
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            log.error("jail.not_ended")

    async def _end_without_group(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await _ended(process)
        kill = _kill if process.returncode is None else _kill_session
        async with asyncio.timeout(END_SECONDS):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, kill, process.pid)

    async def _start(
        self, kind: Kind, program: Program, bounds: Bounds, group: ControlGroup | None
    ) -> _Started:
        try:
            return await self._started(kind, program, bounds, group)
        except (FileNotFoundError, PermissionError) as error:
            raise WorkUnavailable(f"{error.filename} cannot be run: {error.strerror}") from None
        except OSError as error:  # no process or no descriptor is left, which passes
            raise WorkError(f"The command was not started: {error.strerror}. Try again.") from None

    async def _started(
        self, kind: Kind, program: Program, bounds: Bounds, group: ControlGroup | None
    ) -> _Started:
        contents = (program.script.encode(errors="replace"), _filter(), bubblewrap.people())
        told = kind is Kind.LANDLOCK
        processors = PROCESSORS.of_programs
        door = None
        with ExitStack() as stack:
            script, calls, people = stack.enter_context(_readable(*contents))
            given = [script] if told else [script, calls, people]
            if told:
                command = landlocked.command_line(
                    program, bounds, self._machine, processors, script
                )
            else:
                files = bubblewrap.Files(calls=calls, script=script, people=people)
                if program.network is not None:
                    door, end = socket.socketpair()
                    files = replace(files, door=stack.enter_context(end).fileno())
                    given.append(end.fileno())
                command = bubblewrap.command_line(program, bounds, self._machine, processors, files)
            try:
                process = await asyncio.create_subprocess_exec(
                    *(command if group is None else group.entering(command)),
                    stdin=asyncio.subprocess.PIPE if told else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env={"PATH": _OUTSIDE_PATH},
                    pass_fds=given,
                    start_new_session=True,
                    limit=STREAM_BYTES,
                )
            except OSError:
                if door is not None:
                    door.close()
                raise
        if process.stdout is None or process.stderr is None:
            raise RuntimeError("a process was started without its outputs")
        return _Started(process, process.stdout, process.stderr, told, door, group)


async def _serve(door: socket.socket | None, network: Network | None) -> None:
    """Serve those who connect to the port that a jail hands out, until this is cancelled."""
    if door is None or network is None:
        return
    with door:
        port = await _handed_out(door)
    if port is not None:
        with port:
            await network(port)


async def _handed_out(door: socket.socket) -> socket.socket | None:
    """Return the port of a jail once it is open; None where the jail has ended before."""
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(door, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(door)
    _, descriptors, _, _ = socket.recv_fds(door, 1, 1, socket.MSG_CMSG_CLOEXEC)
    return socket.socket(fileno=descriptors[0]) if descriptors else None


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Return when a process has ended, also while others still hold its outputs."""
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
    """Kill a jail's first process with all that it has started, then what is left of its session.

    It is stopped before: once it were dead, nobody would know its children, which leave its session
    and have perhaps not yet asked the kernel to end with it.
    """
    with suppress(ProcessLookupError):
        os.kill(first, signal.SIGSTOP)
        _wait_until_stopped(first)
        for process in reversed(list(processes_of(first))):
            _kill_one(process)
    _kill_session(first)


def _kill_one(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _wait_until_stopped(process: int) -> None:
    give_up_at = time.monotonic() + _STOP_SECONDS
    while is_running(process) and time.monotonic() < give_up_at:
        time.sleep(_STOP_LOOK_SECONDS)


def _kill_session(first: int) -> None:
    """Kill whatever is left of a jail's session, by its first process, which has ended.

    Without namespaces, programs may go on starting others while this looks for them, so it looks
    more than once.
    """
    for _ in range(_ROUNDS):
        left = list(processes_in_session(first))
        for process in left:
            with suppress(OSError):  # it has ended; as a group no new one gets away
                os.killpg(os.getpgid(process), signal.SIGKILL)
        if not left:
            break


@contextmanager
def _readable(*contents: bytes) -> Iterator[list[int]]:
    """Yield descriptors from which texts can be read, in memory."""
    opened: list[int] = []
    try:
        for content in contents:
            opened.append(os.memfd_create("jail"))
            with open(opened[-1], "wb", closefd=False) as file:
                file.write(content)
            os.lseek(opened[-1], 0, os.SEEK_SET)
        yield opened
    finally:
        for descriptor in opened:
            os.close(descriptor)


@cache
def _filter() -> bytes:
    known = architecture()
    if known is None:
        raise WorkUnavailable("there is no filter of system calls for it")
    return seccomp.as_bytes(seccomp.program_for_programs(known, IN_NAMESPACES, ABSENT))
