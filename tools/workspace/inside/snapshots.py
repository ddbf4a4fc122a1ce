"""What files were before a command, which may change any of them in any way.

Small files are copied before it runs, all into one file, as making many takes long: a hard link
would show what is written into them, and not every disk copies lazily. After it, what it has
changed or deleted becomes one version that is kept, and the copies go. What a killed process has
left of that is finished by the next one.
"""

import json
import os
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sandbox.errors import WorkError
from sandbox.rooted import open_below
from tools.workspace.inside.folder import CLOSED, Entry, Folder, read, said
from tools.workspace.inside.kept import Kept, Part, remove

MAX_FILE_BYTES: Final = 2**20
"""Of one file; larger ones are not copied."""
MAX_BYTES: Final = 8 * 2**20
"""Of all copies for one command, the smallest files first."""
MAX_FILES: Final = 200
_MAX_INDEX_BYTES: Final = 4 * 2**20
_BEFORE: Final = ".before"
_PARTS: Final = ".parts"
_END: Final = struct.Struct(">8sQ")
_WHOLE: Final = b"all here"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy of a file.

    Attributes:
        path: of the file.
        mode: its rights.
        stamp: differs after any change of the file; nobody can set the time of its last one.
        start: of the copy among all copies.
        size: of the copy.
    """

    path: str
    mode: int
    stamp: list[int]
    start: int
    size: int


class Snapshots:
    """Keeps what commands overwrite and delete.

    Args:
        files: the workspace.
        place: where copies lie, beside the versions.
        kept: keeps the versions.
    """

    def __init__(self, files: Folder, place: Folder, kept: Kept) -> None:
        self._files = files
        self._place = place
        self._kept = kept
        self._running: set[str] = set()

    def before_command(self) -> str:
        """Copy what a command could change, and return what `after_command` wants to know."""
        self.finish()
        snapshot = f"{time.time_ns() // 1_000:020}"
        try:
            with said(snapshot):
                descriptor = open_below(
                    self._place.descriptor, snapshot + _BEFORE, _NEW, mode=0o600
                )
                try:
                    self._copy_into(descriptor)
                finally:
                    os.close(descriptor)
        except WorkError:
            remove(self._place, snapshot + _BEFORE)
            raise
        self._running.add(snapshot)
        return snapshot

    def after_command(self, snapshot: str) -> str:
        """Keep what was changed or deleted since, as it was."""
        self._finish(snapshot)
        self._running.discard(snapshot)
        return ""

    def last_change(self) -> str:
        """Return when and for whom that was changed which `undo` takes; see `Kept.last_change`."""
        self.finish()
        return self._kept.last_change()

    def undo(self) -> str:
        """Bring back what was last overwritten or deleted, and return the paths, one a line."""
        self.finish()
        return self._kept.restore()

    def finish(self) -> None:
        """Keep what commands have changed whose process was killed."""
        for name in self._place.names():
            snapshot = name.removesuffix(_BEFORE)
            if snapshot != name and snapshot not in self._running:
                self._finish(snapshot)

    def _copy_into(self, descriptor: int) -> None:
        copies = []
        for copy, data in self._copies():
            _write(descriptor, data)
            copies.append(asdict(copy))
        index = json.dumps({"copies": copies, "by": self._kept.by}).encode()
        _write(descriptor, index)
        _write(descriptor, _END.pack(_WHOLE, len(index)))

    def _copies(self) -> Iterator[tuple[_Copy, bytes]]:
        small = (
            entry
            for entry in self._files.walk()
            if entry.is_file and entry.status.st_size <= MAX_FILE_BYTES
        )
        start = 0
        for entry in sorted(small, key=lambda one: one.status.st_size)[:MAX_FILES]:
            try:
                with self._files.file(entry.path) as (descriptor, status):
                    data = read(descriptor, MAX_FILE_BYTES)
            except WorkError as error:
                if str(error).endswith(CLOSED):
                    raise
                continue  # gone meanwhile
            if start + len(data) > MAX_BYTES:
                break
            yield (
                _Copy(entry.path, status.st_mode & 0o777, _stamp(status), start, len(data)),
                data,
            )
            start += len(data)

    def _finish(self, snapshot: str) -> None:
        name = snapshot + _BEFORE
        # Finished already by a process that took this one's place, or by one that was killed then.
        if self._place.status_here(name) is None or self._place.status_here(snapshot) is not None:
            remove(self._place, name)
            return
        with self._place.file(name) as (copies, status):
            index, by = _index(copies, status.st_size)
            changed = [copy for copy in index if self._has_changed(copy, copies)]
            if changed:
                self._keep(snapshot, changed, copies, by)
        remove(self._place, name)

    def _has_changed(self, copy: _Copy, copies: int) -> bool:
        try:
            with self._files.parent(copy.path) as (folder, name):
                status = folder.status_here(name)
            if status is None or not Entry(copy.path, status).is_file:
                return True
            if _stamp(status) == copy.stamp:
                return False
            with self._files.file(copy.path) as (descriptor, _):
                return read(descriptor, MAX_FILE_BYTES + 1) != _data_of(copies, copy)
        except WorkError as error:
            if str(error).endswith(CLOSED):
                raise
            return True

    def _keep(self, snapshot: str, changed: Sequence[_Copy], copies: int, by: str) -> None:
        parts: list[Part] = []
        folder = snapshot + _PARTS
        remove(self._place, folder)  # of a process that was killed
        with said(folder):
            os.mkdir(folder, 0o700, dir_fd=self._place.descriptor)
        with self._place.folder(folder) as place, said(folder):
            for number, copy in enumerate(changed):
                mode = copy.mode | 0o600
                descriptor = open_below(place.descriptor, str(number), _NEW, mode=mode)
                try:
                    _write(descriptor, _data_of(copies, copy))
                finally:
                    os.close(descriptor)
                parts.append((str(number), copy.path))
        self._kept.adopt(folder, snapshot, parts, by)


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _index(descriptor: int, size: int) -> tuple[list[_Copy], str]:
    """Return what was copied, and for whom the command ran.

    Nothing was copied where the process was killed before all of it was.
    """
    if size < _END.size:
        return [], ""
    os.lseek(descriptor, size - _END.size, os.SEEK_SET)
    mark, index_bytes = _END.unpack(read(descriptor, _END.size))
    start = size - _END.size - index_bytes
    if mark != _WHOLE or index_bytes > _MAX_INDEX_BYTES or start < 0:
        return [], ""
    os.lseek(descriptor, start, os.SEEK_SET)
    index = json.loads(read(descriptor, index_bytes))
    if not isinstance(index, dict):  # of a bot that did not note for whom
        index = {"copies": index, "by": ""}
    return [_Copy(**one) for one in index["copies"]], index["by"]


def _data_of(descriptor: int, copy: _Copy) -> bytes:
    os.lseek(descriptor, copy.start, os.SEEK_SET)
    return read(descriptor, copy.size)


def _write(descriptor: int, data: bytes) -> None:
    """Write what need not outlive a loss of power."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
