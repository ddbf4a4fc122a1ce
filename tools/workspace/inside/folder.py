"""A folder seen from inside its sandbox: every path ends in it, and only files are read."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tools.display import visible
from tools.sandbox.errors import WorkError
from tools.sandbox.syscalls import open_below
from tools.workspace.removal import closing

FILES: Final = "files"
"""The part of a chat's folder that people know."""
MAX_DEPTH: Final = 32
MAX_NAMES: Final = 20_000
"""Longest list of a folder."""
MAX_SHOWN_CHARACTERS: Final = 200
_BLOCK_BYTES: Final = 512  # the unit of st_blocks, on every disk

_READ_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # otherwise a FIFO would block
_READ_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

CLOSED: Final = "may not be opened."
"""End of the sentence about a file or folder that lacks rights; its owner can give them back."""
INSIDE: Final = "Something in this folder"
DISK_IS_FULL: Final = "The disk is full; nothing was written."
_SENTENCES: Final = {
    errno.ENOENT: "There is no {name}; list_files shows what there is.",
    errno.EISDIR: "{name} is a folder.",
    errno.ENOTDIR: "A part of {name} is a file and no folder.",
    errno.ELOOP: "{name} is a link that leads nowhere.",
    errno.ENAMETOOLONG: "The name {name} is too long.",
    errno.EEXIST: "{name} is there already.",
    errno.ENOTEMPTY: "The folder {name} is not empty.",
    errno.EINVAL: "{name} is no name of a file.",
    errno.EXDEV: "{name} is on another disk.",
    errno.ENXIO: "{name} is no file.",
    errno.EACCES: f"{{name}} {CLOSED}",
    errno.EPERM: f"{{name}} {CLOSED}",
    errno.EROFS: "The disk may only be read; nothing was written.",
    errno.ENOSPC: DISK_IS_FULL,
    errno.EDQUOT: DISK_IS_FULL,
    errno.EFBIG: "This file would be larger than a workspace may be; nothing was written.",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or other thing in a folder, by its path from the workspace on."""

    path: str
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Whether it holds others."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether it has contents."""
        return stat.S_ISREG(self.status.st_mode)

    @property
    def taken_bytes(self) -> int:
        """Bytes that it takes of the disk."""
        return self.status.st_blocks * _BLOCK_BYTES


def shown(path: str) -> str:
    """Return a path on one line, with nothing hidden in it."""
    text = visible(path)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


@contextmanager
def said(path: str) -> Iterator[None]:
    """Turn the kernel's errors about a path into a WorkError with a sentence."""
    try:
        yield
    except OSError as error:
        sentence = _SENTENCES.get(error.errno or 0)
        if sentence is None:
            raise
        raise WorkError(sentence.format(name=shown(path))) from None
    except ValueError:
        raise WorkError(f"{shown(path)} has a character that no path can have.") from None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder and everything below it, by a descriptor of the folder."""

    descriptor: int

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        with said(path):
            descriptor = open_below(self.descriptor, path or ".", flags)
        with closing(descriptor):
            yield descriptor

    def read(self, path: str, most_bytes: int) -> tuple[bytes, int]:
        """Return the first bytes of a file, and its size; WorkError for anything but a file."""
        with self._opened(path, _READ_FILE) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise WorkError(f"{shown(path)} is a folder.")
            if not stat.S_ISREG(status.st_mode):
                raise WorkError(f"{shown(path)} is no file.")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(most_bytes), status.st_size

    @contextmanager
    def folder(self, path: str) -> "Iterator[Folder]":
        """Open a folder below this one."""
        with self._opened(path, _READ_FOLDER) as descriptor:
            yield Folder(descriptor)

    @contextmanager
    def _found(self, name: str) -> "Iterator[Folder]":
        """Open a folder in this very one; errors do not name it, as strangers may have."""
        with said(INSIDE):
            descriptor = open_below(self.descriptor, name, _READ_FOLDER)
        with closing(descriptor):
            yield Folder(descriptor)

    @contextmanager
    def parent(self, path: str, *, make: bool = False) -> "Iterator[tuple[Folder, str]]":
        """Open or make the folder of a file, which need not exist; return it and the name."""
        above, _, name = path.rstrip("/").rpartition("/")
        if name in {"", ".", ".."}:
            raise WorkError(f"{shown(path) or 'An empty path'} is no name of a file.")
        if make:
            self._make(above)
        with self.folder(above) as folder:
            with said(path):
                folder.status_here(name)  # whether there can be such a name at all
            yield folder, name

    def _make(self, path: str) -> None:
        steps = steps_of(path)
        if len(steps) > MAX_DEPTH:
            raise WorkError(f"Folders may be at most {MAX_DEPTH} deep.")
        for count in range(1, len(steps) + 1):
            above = self.parent("/".join(steps[:count]))
            with above as (folder, name), said(path), suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=folder.descriptor)

    def status_here(self, name: str) -> os.stat_result | None:
        """Return the kernel's facts about a name in this very folder, or None; follow no link."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def walk(
        self, *, deep: bool = True, is_all: bool = False, inside: str = "", depth: int = 0
    ) -> Iterator[Entry]:
        """Yield everything in this folder and in those below it, sorted; follow no links.

        Args:
            deep: also the folders below.
            is_all: raise WorkError for folders that are too deep, instead of leaving them out.
            inside: prefix of the paths.
            depth: of this folder below the first one.
        """
        with os.scandir(self.descriptor) as entries:
            names = [entry.name for entry in islice(entries, MAX_NAMES + 1)]
        if len(names) > MAX_NAMES:
            raise WorkError(f"A folder has more than {MAX_NAMES:,} files.")
        for name in sorted(names):
            with said(INSIDE):
                status = self.status_here(name)
            if status is None:
                continue  # gone in the meantime
            entry = Entry(inside + name, status)
            yield entry
            if not deep or not entry.is_folder:
                continue
            if depth < MAX_DEPTH:
                with self._found(name) as below:
                    yield from below.walk(is_all=is_all, inside=f"{entry.path}/", depth=depth + 1)
            elif is_all:
                raise WorkError(f"Folders may be at most {MAX_DEPTH} deep.")

    def write(self, name: str, data: bytes) -> None:
        """Write a new file in this very folder, to the disk; raises OSError."""
        with closing(open_below(self.descriptor, name, _NEW_FILE, mode=0o600)) as descriptor:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of a workspace, or of a folder of the machine, and how much there may be.

    Attributes:
        folder: that people know.
        drafts: where new contents are written before they take their place; None: next to it.
        quota_bytes: most that all files may take together.
        max_files: most files and folders.
        max_read_bytes: of a file in one call.
        max_sent_bytes: of a file that is handed to the bot.
    """

    folder: Folder
    drafts: Folder | None
    quota_bytes: int
    max_files: int
    max_read_bytes: int
    max_sent_bytes: int


def steps_of(path: str) -> list[str]:
    """Return the names in a path."""
    return [step for step in path.split("/") if step not in {"", "."}]


def counted(count: int, one: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"
