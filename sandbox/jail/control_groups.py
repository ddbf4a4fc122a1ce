"""Control groups: the kernel bounds all processes of a jail together, and ends them at once.

There are some where this process's own group was handed over to it: by systemd (`Delegate=`), or as
the first one that a container sees. Of what bounds a group, only those controllers are used that
are there; for the others somebody has to look (`watch`). Only groups below its own are made, each
for one jail.

Sources: https://docs.kernel.org/admin-guide/cgroup-v2.html; https://systemd.io/CGROUP_DELEGATION/
"""

import asyncio
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Final, Self

import structlog

from sandbox.jail.program import Bounds, Stopped

ALSO_THERE: Final = 3
"""Processes of the jail itself."""
CPU_WEIGHT: Final = 1
"""Of a jail, beside 100 of the bot: whoever waits for an answer comes first."""
ENTERED_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.005
_LOOKS: Final = 1_000
_MOVES: Final = 100
"""At most, until nobody is left in this process's own group; each may have begun a few others."""
_ENTER: Final = ("sh", "-c", 'echo 0 >"$0" && exec "$@"')
_BOT: Final = "bot"
_SWAP: Final = "memory.swap.max"
_JAIL: Final = "jail-"
_NAME_BYTES: Final = 8

log = structlog.get_logger()


class Controller(StrEnum):
    """What bounds a group, by its name in the kernel."""

    CPU = "cpu"
    MEMORY = "memory"
    PIDS = "pids"


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The group of one jail.

    Attributes:
        path: its folder.
        controllers: that bound it.
        lock: descriptor of its folder, locked: it is in use as long as this process lives.
    """

    path: Path
    controllers: frozenset[Controller]
    lock: int

    def entering(self, command: list[str]) -> list[str]:
        """Return a command that runs in this group from its first instruction on."""
        return [*_ENTER, str(self.path / "cgroup.procs"), *command]

    def processes(self) -> Iterator[int]:
        """Yield all that are in it, whoever started them."""
        with suppress(OSError):
            yield from map(int, (self.path / "cgroup.procs").read_text().split())

    def exceeded(self) -> Stopped | None:
        """Return the bound at which the kernel has refused something, or ended the group."""
        if _event(self.path / "memory.events", "oom_kill"):
            return Stopped.MEMORY
        return Stopped.PROCESSES if _event(self.path / "pids.events", "max") else None

    def kill(self) -> None:
        """End all that are in it, at once: nobody can start another one meanwhile."""
        with suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

    async def remove(self) -> None:
        """End all that are in it, and remove it."""
        self.kill()
        os.close(self.lock)
        for _ in range(_LOOKS):
            if _removed(self.path):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        log.error("jail.group_left")


class ControlGroups:
    """Makes a group for each jail, in a folder that was handed over.

    Args:
        folder: of this process's own group.
        controllers: that bound the groups in it.
    """

    def __init__(self, folder: Path, controllers: frozenset[Controller]) -> None:
        self._folder = folder
        self.controllers = controllers

    @classmethod
    async def open(cls) -> Self | None:
        """Return what makes groups; None where this process may make none.

        The bot moves to a group of its own, because no process may be in one that hands its
        controllers down to others.
        """
        folder = _handed_over()
        if folder is None:
            return None
        try:
            for left in _leftovers(folder):
                await left.remove()
            groups = cls(folder, _handed_down(folder))
            return groups if await groups._can_be_entered() else None
        except OSError as error:
            log.info("jail.no_groups", error=type(error).__name__)
            return None

    def make(self, bounds: Bounds) -> ControlGroup:
        """Make a group for a jail.

        Args:
            bounds: what all its processes may take together.

        Raises:
            OSError: the kernel takes no more, or not this.
        """
        path = self._folder / f"{_JAIL}{secrets.token_hex(_NAME_BYTES)}"
        path.mkdir()
        lock = _locked(path)
        try:
            for name, value in _limits(bounds, self.controllers).items():
                if name != _SWAP or (path / name).exists():  # not every kernel counts it
                    (path / name).write_text(f"{value}\n")
        except OSError:
            os.close(lock)
            _removed(path)
            raise
        return ControlGroup(path, self.controllers, lock)

    async def _can_be_entered(self) -> bool:
        """Try it: whether a process may be moved depends on more than the rights of files."""
        group = self.make(Bounds())
        try:
            process = await asyncio.create_subprocess_exec(
                *group.entering(["true"]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            async with asyncio.timeout(ENTERED_SECONDS):
                entered = await process.wait() == 0
            return entered and (group.path / "cgroup.kill").exists()  # since Linux 5.14
        finally:
            await group.remove()


def _limits(bounds: Bounds, controllers: frozenset[Controller]) -> Mapping[str, int]:
    limits: dict[str, int] = {}
    if Controller.CPU in controllers:
        limits["cpu.weight"] = CPU_WEIGHT
    if Controller.PIDS in controllers:
        limits["pids.max"] = bounds.processes + ALSO_THERE
    if Controller.MEMORY in controllers:
        limits |= {"memory.max": bounds.memory_bytes, "memory.oom.group": 1, _SWAP: 0}
    return limits


def _handed_over() -> Path | None:
    """Return the folder of the group that this process began in, if it was handed over to it.

    Not every group whose folder can be written was: of those of a desktop, another manager
    believes that they are its own.
    """
    try:
        place = _own_place()
        mounted = _mount_point()
        if place is None or mounted is None:
            return None
        folder = mounted / place.relative_to("/")
        if place != Path("/") and os.getxattr(folder, "user.delegate") != b"1":
            return None
        files = (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control")
        return folder if all(os.access(file, os.W_OK) for file in files) else None
    except OSError:
        return None


def _own_place() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, _, place = line.split(":", 2)
        if number == "0" and ".." not in Path(place).parts:
            return Path(place).parent if Path(place).name == _BOT else Path(place)
    return None


def _mount_point() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        if source.startswith("cgroup2 ") and mount.split()[3] == "/":
            return Path(mount.split()[4])
    return None


def _handed_down(folder: Path) -> frozenset[Controller]:
    """Have the groups below a folder bounded, and return by which controllers they are."""
    there = (folder / "cgroup.controllers").read_text().split()
    wanted = [controller for controller in Controller if controller in there]
    if not wanted:
        return frozenset()
    if (folder / "cgroup.type").exists():  # else it is the machine's first one, with its own rules
        _move_out(folder)
    for controller in wanted:
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    handed_down = (folder / "cgroup.subtree_control").read_text().split()
    return frozenset(controller for controller in wanted if controller in handed_down)


def _move_out(folder: Path) -> None:
    """Move this process, and all that it has started, into a group of their own."""
    (folder / _BOT).mkdir(exist_ok=True)
    target = folder / _BOT / "cgroup.procs"
    target.write_text(str(os.getpid()))  # first, so that what it starts from now on is there, too
    for _ in range(_MOVES):
        left = (folder / "cgroup.procs").read_text().split()
        if not left:
            return
        for process in left:
            with suppress(OSError):  # it has ended
                target.write_text(process)


def _leftovers(folder: Path) -> Iterator[ControlGroup]:
    """Yield the groups of bots that were killed."""
    for path in list(folder.glob(f"{_JAIL}*")):
        with suppress(OSError):  # it is in use, or gone
            yield ControlGroup(path, frozenset(), _locked(path))


def _locked(path: Path) -> int:
    """Return a descriptor of a folder that nobody else has locked; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _removed(path: Path) -> bool:
    """Remove a group; False while there are processes in it."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _event(path: Path, name: str) -> int:
    """Return how often something has happened to a group; 0 where nobody counts it."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)
