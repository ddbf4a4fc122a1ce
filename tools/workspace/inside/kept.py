"""The last versions of files that were overwritten or deleted, kept for a day.

Each has two names in its folder: `N` is what it was, `N.json` says where, and for whom it was
changed. All that a command has changed is one version: `N` is a folder of files, and `N.json` says
where each was. New contents are written there, too, before they take their place.
"""

import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sandbox.errors import WorkError
from tools.workspace.inside.folder import CLOSED, Entry, Folder, read, said, shown

KEPT_SECONDS: Final = 86_400
_MAX_RECORD_BYTES: Final = 2**20
_RECORD: Final = ".json"
_DRAFT: Final = "draft"
_DRAFT_CHARACTERS: Final = 50


Part = tuple[str, str]
"""A file of a version of several: its name in the version, and the path that it had."""


@dataclass(frozen=True, slots=True)
class _Version:
    """A version that is kept.

    Attributes:
        name: of it.
        path: that it had; empty for a version of several files.
        parts: the files of such a one.
        by: see `Kept.by`.
    """

    name: str
    path: str
    parts: tuple[Part, ...] = ()
    by: str = ""

    @property
    def kept_at(self) -> float:
        return int(self.name) / 1_000_000


class Kept:
    """Keeps the last version of each file.

    Args:
        files: the workspace.
        kept: where versions are kept, on the same disk.
        most_bytes: what they take together; the oldest go first.

    Attributes:
        by: for whom files are changed now, by a name that tells nothing; empty: not known.
    """

    BACK: Final = " The person can bring it back with !undo for a day."

    def __init__(self, files: Folder, kept: Folder, *, most_bytes: int) -> None:
        self._files = files
        self._kept = kept
        self._most_bytes = most_bytes
        self.by = ""

    def put(self, data: bytes, folder: Folder, name: str, path: str) -> None:
        """Write a file whole, in place of one that was there, or leave everything as it was.

        Args:
            data: the contents.
            folder: where.
            name: there.
            path: the same from the workspace on.

        Raises:
            OSError: it cannot be written.
        """
        remove(self._kept, _DRAFT)  # of a process that was killed
        before = folder.status_here(name)
        try:
            self._kept.write(_DRAFT, data)
            if before is not None and Entry(name, before).is_file:
                self._copy(folder, name, path)
            os.rename(_DRAFT, name, src_dir_fd=self._kept.descriptor, dst_dir_fd=folder.descriptor)
        except OSError:
            remove(self._kept, _DRAFT)
            raise
        os.fsync(folder.descriptor)

    def _copy(self, folder: Folder, name: str, path: str) -> None:
        """Keep what a file is now; it stays where it is."""
        os.link(
            name,
            self._record(path),
            src_dir_fd=folder.descriptor,
            dst_dir_fd=self._kept.descriptor,
            follow_symlinks=False,
        )

    def move(self, folder: Folder, name: str, path: str) -> None:
        """Keep a file or folder, which is gone from its place then."""
        _refuse_closed(folder, name, path)
        version = self._record(path)
        with said(path):
            os.rename(name, version, src_dir_fd=folder.descriptor, dst_dir_fd=self._kept.descriptor)
        self._prune()

    def adopt(self, folder: str, name: str, parts: Sequence[Part], by: str) -> None:
        """Make a version of several files of a folder that lies beside the versions.

        Args:
            folder: its name there.
            name: of the version: when it was so, in µs, with 20 digits.
            parts: the files.
            by: for whom they were changed.
        """
        with said(folder):
            remove(self._kept, name + _RECORD)  # of a process that was killed
            self._write_record(name, parts, by)
            os.rename(
                folder, name, src_dir_fd=self._kept.descriptor, dst_dir_fd=self._kept.descriptor
            )
        self._prune()

    def last_change(self) -> str:
        """Return as JSON when, in ms, and for whom that was changed which `restore` takes back.

        `null`: there is nothing.
        """
        self._prune()
        latest = max(self._versions(), key=lambda version: version.kept_at, default=None)
        return json.dumps(latest and [int(latest.kept_at * 1_000), latest.by])

    def restore(self) -> str:
        """Put what was kept last back to its place and return its path, or several, one a line.

        Raises:
            WorkError: nothing is kept, or nothing of it can be put back.
        """
        self._prune()
        version = next(iter(reversed(list(self._versions()))), None)
        if version is None:
            raise WorkError("Nothing was overwritten or deleted in the last day.")
        if version.parts:
            return self._restore_parts(version)
        self._put_back(self._kept, version.name, version.path)
        self._forget_record(version.name)
        return shown(version.path)

    def _restore_parts(self, version: _Version) -> str:
        """Put back what can be; the rest of the version goes then."""
        restored, problems = [], []
        with self._kept.folder(version.name) as kept:
            for name, path in version.parts:
                try:
                    self._put_back(kept, name, path)
                except WorkError as error:
                    problems.append(error)
                else:
                    restored.append(shown(path))
        if not restored:
            raise problems[0]
        self._drop(version)
        return "\n".join(restored)

    def _put_back(self, kept: Folder, name: str, path: str) -> None:
        with self._files.parent(path, make=True) as (folder, target), said(path):
            there = folder.status_here(target)
            if there is not None and Entry(target, there).is_folder:
                raise WorkError(f"{shown(path)} is a folder now; move it away first.")
            os.rename(name, target, src_dir_fd=kept.descriptor, dst_dir_fd=folder.descriptor)

    def _record(self, path: str) -> str:
        """Note that a version of a path will be kept and return its name; earlier ones go."""
        for version in list(self._versions()):
            if version.path == path:
                self._drop(version)
        name = f"{time.time_ns() // 1_000:020}"
        self._write_record(name, path, self.by)
        return name

    def _write_record(self, name: str, changed: str | Sequence[Part], by: str) -> None:
        record = {"changed": changed, "by": by}
        self._kept.write(name + _RECORD, json.dumps(record).encode())

    def _versions(self) -> Iterator[_Version]:
        """Go through what is kept, the oldest first; forget notes about what is not."""
        names = set(self._kept.names())
        for record in sorted(name for name in names if name.endswith(_RECORD)):
            name = record.removesuffix(_RECORD)
            if name not in names:
                self._forget_record(name)
                continue
            with self._kept.file(record) as (descriptor, _):
                noted = json.loads(read(descriptor, _MAX_RECORD_BYTES))
            if not isinstance(noted, dict):  # by a bot that did not note for whom
                noted = {"changed": noted, "by": ""}
            changed, by = noted["changed"], noted["by"]
            if isinstance(changed, str):
                yield _Version(name, changed, by=by)
            else:
                yield _Version(name, "", tuple((part, path) for part, path in changed), by)

    def _prune(self) -> None:
        versions = list(self._versions())
        sizes = {version: self._size(version.name) for version in versions}
        total = sum(sizes.values())
        for version in versions:
            if version.kept_at < time.time() - KEPT_SECONDS or total > self._most_bytes:
                total -= sizes[version]
                self._drop(version)

    def _size(self, name: str) -> int:
        status = self._kept.status_here(name)
        if status is None:
            return 0
        entry = Entry(name, status)
        if not entry.is_folder:
            return entry.taken_bytes
        with self._kept.folder(name) as folder:
            return entry.taken_bytes + sum(one.taken_bytes for one in folder.walk())

    def _drop(self, version: _Version) -> None:
        remove(self._kept, version.name)
        self._forget_record(version.name)

    def _forget_record(self, name: str) -> None:
        os.unlink(name + _RECORD, dir_fd=self._kept.descriptor)


class NothingKept:
    """Stands for `Kept` in a folder of the machine's, where no versions are to be left lying."""

    BACK: Final = " It is gone for good."

    by = ""

    def put(self, data: bytes, folder: Folder, name: str, path: str) -> None:
        """Write a file whole, in place of one that was there."""
        draft = f".{name[:_DRAFT_CHARACTERS]}.{time.time_ns()}"
        with said(path):
            try:
                folder.write(draft, data)
                os.rename(draft, name, src_dir_fd=folder.descriptor, dst_dir_fd=folder.descriptor)
            except OSError:
                remove(folder, draft)
                raise

    def move(self, folder: Folder, name: str, path: str) -> None:
        """Delete a file or folder for good."""
        with said(path):
            remove(folder, name)


def _refuse_closed(folder: Folder, name: str, path: str) -> None:
    """Say now, and not when it is too late, that a folder could not be emptied one day."""
    status = folder.status_here(name)
    if status is None or not (top := Entry(path, status)).is_folder:
        return
    with folder.folder(name) as below:
        for entry in (top, *below.walk(inside=f"{path}/")):
            if entry.is_folder and entry.status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                raise WorkError(f"{shown(entry.path)} {CLOSED}")


def remove(folder: Folder, name: str) -> None:
    """Delete a file, or a folder with all that is in it."""
    with said(name):
        status = folder.status_here(name)
        if status is None:
            return
        if not Entry(name, status).is_folder:
            os.unlink(name, dir_fd=folder.descriptor)
            return
    with folder.folder(name) as below:
        for one in below.names():
            remove(below, one)
    with said(name):
        os.rmdir(name, dir_fd=folder.descriptor)
