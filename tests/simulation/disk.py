"""A disk that loses what was not synced, refuses writes and dies, all on request.

SQLite runs on it through a VFS. The real files live in an ordinary folder, and hold the writes that
reached the operating system. `Disk` remembers for each file what a sync has made durable, so a
power loss can put the files back. Files that the product writes without SQLite are not covered.

Creating and deleting a file is durable at once: SQLite syncs the folder where it depends on it. A
change of a file is durable after the next sync. Until then a power loss may keep or lose each write
on its own, and may cut one off in the middle. Bytes outside of a write stay whole. SQLite relies on
no more than that (sqlite.org/psow.html).

`in_loop_connection` is here as well, because only both together take real time and threads out of
SQLite: the VFS never sleeps, and the connection has no thread.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import apsw

from conversation_store import connections

_NOTE: Final = "by the simulated disk"

_numbers: Final = count()

Refusal = Literal["", "read-only", "io"]

Change = tuple[int, bytes | None]
"""Offset and new bytes of a write; None: the file is cut off at the offset."""


@dataclass(slots=True)
class _Stored:
    """A file on the disk.

    Attributes:
        durable: the content that survives a power loss.
        unsynced: later changes, in their order.
        size: of the content that processes see.
    """

    inode: int
    durable: bytearray
    size: int
    unsynced: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def lose_power(self, rng: Random, fate: str) -> None:
        """Apply the unsynced changes that reached the disk, and forget the others."""
        kept = [
            change
            for change in self.unsynced
            if fate == "all kept" or (fate != "all lost" and rng.random() < 0.5)
        ]
        if kept and fate == "one torn":
            offset, data = kept[-1]
            kept[-1] = (offset, data and data[: rng.randrange(len(data))])
        self.unsynced = kept
        self.sync()


class Disk:
    """The disk of one simulated machine. One process of the bot at a time uses it.

    A kill has three steps: `die`, then the caller cancels the bot and closes its connections, then
    `crash`. A connection that stays open keeps the old files, and can do no harm.

    Attributes:
        full: writes that make a file longer raise `apsw.FullError`.
        refuses: changes raise `apsw.ReadOnlyError` or `apsw.IOError`; reads go on.
        writes: number of writes so far.
        syncs: number of syncs so far. The caller charges virtual time for them.
        lives: number of crashes so far.
    """

    def __init__(self, seed: int = 0) -> None:
        self.full = False
        self.refuses: Refusal = ""
        self.writes = 0
        self.syncs = 0
        self.lives = 0
        self.is_dead = False
        self._random = Random(seed)
        self._stored: dict[str, _Stored] = {}
        self._changes_left: int | None = None
        self._on_death: Callable[[], None] = lambda: None

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Use this disk for each connection that is opened in the block."""
        vfs = _Vfs(self, f"simulated-{next(_numbers)}", self._random)
        apsw.randomness(0)  # SQLite seeds its random numbers again, now from this disk
        report = sys.unraisablehook

        def report_others(unraisable: "sys.UnraisableHookArgs") -> None:
            # apsw reports errors here that SQLite ignores, for example when a cursor is dropped.
            if _NOTE not in getattr(unraisable.exc_value, "__notes__", ()):
                report(unraisable)

        sys.unraisablehook = report_others
        try:
            yield
        finally:
            sys.unraisablehook = report
            vfs.unregister()  # the previous default is the default again
            apsw.randomness(0)

    def die(self) -> None:
        """Let no change through any more, until `crash`."""
        self.is_dead = True
        self._changes_left = None

    def die_after(self, changes: int, on_death: Callable[[], None] = lambda: None) -> None:
        """Die just before one of the next changes: a write, a sync, a cut or a deletion.

        Args:
            changes: 1 is the next one.
            on_death: called once, inside of SQLite. It must not raise, nor use a connection.
        """
        self._changes_left = changes
        self._on_death = on_death

    def crash(self, rng: Random, *, power: bool) -> None:
        """Put the files into the state that the next process finds, and revive the disk.

        Args:
            power: also lose unsynced changes; without, only the process was killed.
        """
        self.die()
        fate = rng.choice(("all lost", "all kept", "some kept", "one torn"))
        for name, stored in list(self._stored.items()):
            path = Path(name)
            path.with_name(path.name + "-shm").unlink(missing_ok=True)
            if _inode(name) != stored.inode:  # deleted or replaced without SQLite
                del self._stored[name]
                continue
            if power:
                stored.lose_power(rng, fate)
            content = bytes(stored.durable) if power else path.read_bytes()
            # A new file: connections that were never closed share neither its locks nor its
            # shared memory.
            fresh = path.with_name(path.name + ".fresh")
            fresh.write_bytes(content)
            fresh.chmod(path.stat().st_mode)
            fresh.rename(path)
            stored.inode, stored.size = _inode(name), len(content)
        self.lives += 1
        self.is_dead = False

    @property
    def is_refusing(self) -> bool:
        """Return whether the disk refuses some changes."""
        return self.full or bool(self.refuses)

    def is_alive(self, life: int) -> bool:
        """Return whether the process of a life still runs."""
        return life == self.lives and not self.is_dead

    def change(self, life: int, *, refusable: bool = True) -> None:
        """Raise unless a change of the process of a life may happen now."""
        if self._changes_left is not None and self.is_alive(life):
            self._changes_left -= 1
            if self._changes_left == 0:
                self.die()
                self._on_death()
        if not self.is_alive(life):
            raise _noted(apsw.IOError("the process is dead"))
        if self.refuses == "io":
            raise _noted(apsw.IOError("the disk reports an error"))
        if self.refuses and refusable:
            raise _noted(apsw.ReadOnlyError("the disk is read-only"))

    def opened(self, name: str, content: Callable[[], bytes]) -> _Stored:
        """Return the state of a file that a connection has opened."""
        stored = self._stored.get(name)
        if stored is None or stored.inode != _inode(name):
            durable = bytearray(content())
            stored = self._stored[name] = _Stored(_inode(name), durable, len(durable))
        return stored

    def forget(self, name: str) -> None:
        """Forget a deleted file."""
        self._stored.pop(name, None)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk, name: str, rng: Random) -> None:
        super().__init__(name, "unix", makedefault=True, maxpathname=0)
        self._disk = disk
        self._rng = rng

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> "_File":  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        is_new = path is not None and not Path(path).exists()
        if self._disk.is_dead or (is_new and self._disk.refuses):
            raise _noted(apsw.CantOpenError("the disk refuses"))
        return _File(self._disk, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self._disk.change(self._disk.lives)
        super().xDelete(filename, syncdir)
        self._disk.forget(filename)

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802
        return self._rng.randbytes(numbytes)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        return microseconds  # nobody else runs in the meantime, so waiting would not help


class _File(apsw.VFSFile):
    def __init__(
        self, disk: Disk, path: str | None, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._life = disk.lives
        if path is None:  # a temporary file
            self._stored = _Stored(0, bytearray(), 0)
        else:
            self._stored = disk.opened(path, lambda: self.xRead(self.xFileSize(), 0))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        disk, stored = self._disk, self._stored
        disk.change(self._life)
        end = offset + len(data)
        if end > stored.size and disk.full:
            raise _noted(apsw.FullError("the disk is full"))
        super().xWrite(data, offset)
        disk.writes += 1
        stored.size = max(stored.size, end)
        stored.unsynced.append((offset, data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.change(self._life)
        super().xTruncate(newsize)
        self._stored.size = newsize
        self._stored.unsynced.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.change(self._life, refusable=False)
        self._disk.syncs += 1
        self._stored.sync()  # the real disk need not be synced

    def xLock(self, level: int) -> None:  # noqa: N802
        # The last connection locks the database for itself before it empties and deletes the log.
        # A dead process must not do so: the path may be a file of the next process. SQLite ignores
        # a refusal there, but apsw would raise it; it raises nothing if the lock is busy.
        is_alive = self._disk.is_alive(self._life)
        if not is_alive or (level == apsw.SQLITE_LOCK_EXCLUSIVE and self._disk.is_refusing):
            raise _noted(apsw.BusyError("the disk refuses"))
        super().xLock(level)


def _noted(error: apsw.Error) -> apsw.Error:
    """Mark an error as one of this disk. A class of its own would be unknown to the product."""
    error.add_note(_NOTE)
    return error


def _apply(content: bytearray, change: Change) -> None:
    offset, data = change
    if data is None:
        del content[offset:]
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _inode(name: str) -> int:
    try:
        return os.stat(name).st_ino  # noqa: PTH116
    except FileNotFoundError:
        return 0


class _InLoop:
    """A connection that runs everything in the event loop instead of in a thread."""

    def __init__(self, connection: apsw.Connection, delay: Callable[[], float]) -> None:
        self._connection = connection
        self._delay = delay
        self._turn = asyncio.Lock()  # a thread would keep the order as well

    async def async_run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        raw = [self._connection if argument is self else argument for argument in arguments]
        async with self._turn:
            await asyncio.sleep(self._delay())
            result = function(*raw)
            await asyncio.sleep(self._delay())
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@asynccontextmanager
async def in_loop_connection(
    path: Path, key: str | None, *, delay: Callable[[], float] = lambda: 0.0005
) -> AsyncIterator[Any]:
    """Open a connection without a thread, instead of `conversation_store.connections.connection`.

    Args:
        delay: seconds to sleep before and after each operation. Other tasks run in this time, and
            a kill there finds the operation not done, or done and not reported.
    """
    raw = apsw.Connection(str(path))
    try:
        opened = _InLoop(raw, delay)
        await opened.async_run(connections.prepare, opened, key)
        yield opened
    finally:
        raw.close()
