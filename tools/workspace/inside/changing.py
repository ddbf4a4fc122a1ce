"""What changes a workspace: each change is whole or none, and within the quota."""

from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from sandbox.errors import WorkError
from tools.workspace.inside import notebooks
from tools.workspace.inside.folder import Entry, Folder, counted, read, said, shown
from tools.workspace.inside.kept import Kept, NothingKept
from tools.workspace.inside.texts import BINARY_BYTES, Text, decoded, is_text

MAX_LINES_SHOWN: Final = 20
MAX_NUMBERED: Final = 1_000
INBOX: Final = "inbox"


class Changes:
    """Changes files of a workspace.

    Args:
        files: the workspace.
        kept: keeps the last versions.
        quota_bytes: what all files take together at most; None: there is no bound.
        max_files: how many files and folders there may be.
        most_bytes: of a file that is edited.
    """

    def __init__(
        self,
        files: Folder,
        kept: Kept | NothingKept,
        *,
        quota_bytes: int | None,
        max_files: int,
        most_bytes: int,
    ) -> None:
        self._files = files
        self._kept = kept
        self._quota_bytes = quota_bytes
        self._max_files = max_files
        self._most_bytes = most_bytes

    def write_file(self, file_path: str, content: str, *, create_directories: bool = True) -> str:
        """Write a file anew and say what was written."""
        data = content.encode(errors="replace")
        made = self._put(file_path, data, make=create_directories)
        lines = counted(len(content.splitlines()), "line")
        verb = "Wrote" if made else "Overwrote"
        return f"{verb} {shown(file_path)}: {lines}, {counted(len(data), 'byte')}."

    def edit_file(
        self, file_path: str, old_text: str, new_text: str, *, replace_all: bool = False
    ) -> str:
        """Replace a text in a file and return the changed lines."""
        if not old_text:
            raise WorkError("old_text is empty; to make a new file, use write_file.")
        before = self._text_of(file_path)
        if old_text not in before.text and "\r\n" in before.text:
            old_text, new_text = (text.replace("\n", "\r\n") for text in (old_text, new_text))
        count = before.text.count(old_text)
        if count == 0:
            raise WorkError(f"old_text was not found in {shown(file_path)}; read the file again.")
        if count > 1 and not replace_all:
            raise WorkError(
                f"old_text was found {count} times in {shown(file_path)}; give more of the lines"
                " around it, or set replace_all."
            )
        starts = list(_places(before.text, old_text, new_text))
        after = before.text.replace(old_text, new_text)
        self._put(file_path, before.with_text(after), make=False)
        heading = f"Replaced {count} times" if count > 1 else ""
        return _changed(after, starts, len(new_text), heading)

    def edit_notebook(
        self, file_path: str, cell: int, mode: str, source: str, cell_type: str
    ) -> str:
        """Replace, insert or delete a cell of a notebook and say what it has now."""
        before = self._text_of(file_path)
        after = notebooks.edited(before.text, cell, mode, source, cell_type)
        self._put(file_path, before.with_text(after), make=False)
        done = {"delete": "Deleted", "insert": "Inserted"}.get(mode, "Replaced")
        return f"{done} cell {cell} of {shown(file_path)}."

    def _text_of(self, file_path: str) -> Text:
        """Return what a file says that is to be edited."""
        with self._files.file(file_path) as (descriptor, status):
            if status.st_size > self._most_bytes:
                raise WorkError(f"{shown(file_path)} is too large to be edited.")
            data = read(descriptor, self._most_bytes)
        if not is_text(data[:BINARY_BYTES]):
            raise WorkError(f"{shown(file_path)} is no text.")
        return decoded(data)

    def delete_file(self, file_path: str) -> str:
        """Delete a file, or a folder with what is in it; !undo brings it back for a day."""
        with self._files.parent(file_path) as (folder, name):
            if folder.status_here(name) is None:
                raise WorkError(f"There is no {shown(file_path)}.")
            self._kept.move(folder, name, file_path)
        return f"Deleted {shown(file_path)}.{self._kept.BACK}"

    def receive(self, name: str, data: str) -> str:
        """Put a file that a person sent into the inbox, under a free name, and return its path."""
        stem, dot, suffix = name.rpartition(".")
        if not stem:
            stem, dot, suffix = name, "", ""
        for number in range(1, MAX_NUMBERED):
            path = f"{INBOX}/{name if number == 1 else f'{stem}-{number}{dot}{suffix}'}"
            try:
                self._files.status(path)
            except WorkError:
                self._put(path, b64decode(data), make=True)
                return path
        raise WorkError("Too many files of this name were sent.")

    def _put(self, path: str, data: bytes, *, make: bool) -> bool:
        """Write a file, in place of one that was there; return whether it is new."""
        if path.endswith("/"):
            raise WorkError(f"{shown(path)} is no name of a file.")
        self._check_quota(path, len(data))
        with self._files.parent(path, make=make) as (folder, name), said(path):
            before = folder.status_here(name)
            if before is not None and Entry(name, before).is_folder:
                raise WorkError(f"{shown(path)} is a folder.")
            self._kept.put(data, folder, name, path)
        return before is None

    def _check_quota(self, path: str, size: int) -> None:
        """Refuse a write that would leave more than there may be."""
        if self._quota_bytes is None:
            return
        taken = count = 0
        for entry in self._files.walk():
            count += 1
            taken += 0 if entry.path == path else entry.taken_bytes
        if taken + size > self._quota_bytes:
            raise WorkError(
                f"The workspace is full: {taken:,} of {self._quota_bytes:,} bytes are taken."
                " Nothing was written. Delete files, or ask the person to."
            )
        if count >= self._max_files:
            raise WorkError(
                f"The workspace has {count:,} files and folders, as many as it may."
                " Nothing was written. Delete some, or ask the person to."
            )


def _places(text: str, old: str, new: str) -> Iterator[int]:
    """Yield where each new text begins, once all are replaced."""
    shift = 0
    start = text.find(old)
    while start >= 0:
        yield start + shift
        shift += len(new) - len(old)
        start = text.find(old, start + len(old))


def _changed(text: str, starts: list[int], length: int, heading: str) -> str:
    """Return the lines of a text that changed, with their numbers."""
    lines = text.splitlines()
    numbers: dict[int, None] = {}
    for start in starts[:MAX_LINES_SHOWN]:
        first = text.count("\n", 0, start)
        last = text.count("\n", 0, start + length)
        numbers.update(dict.fromkeys(range(first, last + 1)))
    shown_lines = [
        f"{number + 1}\t{lines[number]}" for number in list(numbers)[:MAX_LINES_SHOWN]
        if number < len(lines)
    ]  # fmt: skip
    more = max(0, len(numbers) - MAX_LINES_SHOWN)
    rest = [f"[{counted(more, 'more line')} changed]"] if more else []
    return "\n".join([*([f"{heading}:"] if heading else []), *shown_lines, *rest]) or "Done."
