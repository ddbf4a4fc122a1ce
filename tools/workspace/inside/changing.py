"""Deeds that change a workspace: each change is whole or none, and within the quota.

The model reads the docstrings of tools with every request, so they are short.
"""

import os
import stat
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Final, Literal

from tools.sandbox.errors import WorkError
from tools.texts import decoded
from tools.workspace.inside.folder import CLOSED, INSIDE, Entry, Files, Folder, counted, said, shown
from tools.workspace.inside.texts import BINARY_BYTES, edited_notebook, encoded, is_text
from tools.workspace.removal import remove

MAX_LINES_SHOWN: Final = 20
MAX_NUMBERED: Final = 1_000
INBOX: Final = "inbox"
_DRAFT: Final = "draft"
_DELETED: Final = "deleted"
_DRAFT_CHARACTERS: Final = 50


def write_file(files: Files, file_path: str, content: str) -> str:
    """Write a text file, with its folders."""
    data = content.encode(errors="replace")
    is_new = _put(files, file_path, data, make=True)
    lines = counted(len(content.splitlines()), "line")
    verb = "Wrote" if is_new else "Overwrote"
    return f"{verb} {shown(file_path)}: {lines}, {counted(len(data), 'byte')}."


def edit_file(
    files: Files, file_path: str, old_text: str, new_text: str, *, replace_all: bool = False
) -> str:
    """Replace a text that a file has once, or replace_all."""
    if not old_text:
        raise WorkError("old_text is empty; to make a new file, use write_file.")
    before, encoding = _text_of(files, file_path)
    if old_text not in before and "\r\n" in before:
        old_text, new_text = (text.replace("\n", "\r\n") for text in (old_text, new_text))
    parts = before.split(old_text)
    count = len(parts) - 1
    if count == 0:
        raise WorkError(f"old_text was not found in {shown(file_path)}; read the file again.")
    if count > 1 and not replace_all:
        raise WorkError(
            f"old_text was found {count} times in {shown(file_path)}; give more of the lines"
            " around it, or set replace_all."
        )
    _put(files, file_path, encoded(new_text.join(parts), encoding), make=False)
    times = f" {count} times" if count > 1 else ""
    return "\n".join([f"Replaced{times} in {shown(file_path)}:", *_changed(parts, new_text)])


def edit_notebook(
    files: Files,
    file_path: str,
    cell: int,
    *,
    mode: Literal["replace", "insert", "delete"] = "replace",
    source: str = "",
    cell_type: Literal["code", "markdown", "raw"] = "code",
) -> str:
    """Change a cell of a notebook, from 0."""
    before, encoding = _text_of(files, file_path)
    after = edited_notebook(before, cell, mode, source, cell_type)
    _put(files, file_path, encoded(after, encoding), make=False)
    done = {"delete": "Deleted", "insert": "Inserted"}.get(mode, "Replaced")
    return f"{done} cell {cell} of {shown(file_path)}."


def delete_file(files: Files, file_path: str) -> str:
    """Delete a file or folder."""
    with files.folder.parent(file_path) as (folder, name), said(file_path):
        status = folder.status_here(name)
        if status is None:
            raise WorkError(f"There is no {shown(file_path)}; list_files shows what there is.")
        if files.drafts is None:
            remove(name, folder.descriptor)
            return f"Deleted {shown(file_path)}."
        # A large folder takes long: it disappears first, and as a whole.
        place = files.drafts.descriptor
        remove(_DELETED, place)  # of a process that was stopped
        if Entry(file_path, status).is_folder:
            _refuse_closed(folder, name)
        os.rename(name, _DELETED, src_dir_fd=folder.descriptor, dst_dir_fd=place)
        remove(_DELETED, place)
    return f"Deleted {shown(file_path)}."


def _refuse_closed(folder: Folder, name: str) -> None:
    """Refuse to delete a folder before its owner may change everything in it."""
    with folder.folder(name) as below:
        for entry in (Entry(name, os.fstat(below.descriptor)), *below.walk()):
            if entry.is_folder and entry.status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                raise WorkError(f"{INSIDE} {CLOSED}")


def receive(files: Files, name: str, data: str) -> str:
    """Put a file that a person sent into the inbox, under a free name, and return its path."""
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    for number in range(1, MAX_NUMBERED):
        path = f"{INBOX}/{name if number == 1 else f'{stem}-{number}{dot}{suffix}'}"
        with files.folder.parent(path, make=True) as (folder, free):
            is_free = folder.status_here(free) is None
        if is_free:
            _put(files, path, b64decode(data), make=True)
            return path
    raise WorkError("Too many files of this name were sent.")


def _text_of(files: Files, file_path: str) -> tuple[str, str]:
    """Return the text of a file that is to be edited, and its encoding."""
    data, size = files.folder.read(file_path, files.max_read_bytes)
    if size > files.max_read_bytes:
        raise WorkError(f"{shown(file_path)} is too large to be edited.")
    if not is_text(data[:BINARY_BYTES]):
        raise WorkError(f"{shown(file_path)} is no text.")
    return decoded(data)


def _put(files: Files, path: str, data: bytes, *, make: bool) -> bool:
    """Write or replace a file; return whether it is new."""
    if path.endswith("/"):
        raise WorkError(f"{shown(path)} is no name of a file.")
    if files.drafts is not None:  # a folder of the machine has no quota
        _check_quota(files, path, len(data))
    with files.folder.parent(path, make=make) as (folder, name), said(path):
        before = folder.status_here(name)
        if before is not None and Entry(name, before).is_folder:
            raise WorkError(f"{shown(path)} is a folder.")
        _replace(data, folder, name, files.drafts)
    return before is None


def _replace(data: bytes, folder: Folder, name: str, drafts: Folder | None) -> None:
    """Write a file whole, or leave everything as it was."""
    place, draft = drafts, _DRAFT
    if place is None:
        place, draft = folder, f".{name[:_DRAFT_CHARACTERS]}.{time.time_ns()}"
    remove(draft, place.descriptor)  # of a process that was killed
    try:
        place.write(draft, data)
        os.rename(draft, name, src_dir_fd=place.descriptor, dst_dir_fd=folder.descriptor)
    except OSError:
        remove(draft, place.descriptor)
        raise
    os.fsync(folder.descriptor)


def _check_quota(files: Files, path: str, size: int) -> None:
    """Refuse a write that would exceed a bound of the workspace."""
    taken = count = 0
    for entry in files.folder.walk():
        count += 1
        taken += 0 if entry.path == path else entry.taken_bytes
    if taken + size > files.quota_bytes:
        raise WorkError(
            f"The workspace is full: {taken:,} of {files.quota_bytes:,} bytes are taken."
            " Nothing was written. Delete files, or ask the person to."
        )
    if count >= files.max_files:
        raise WorkError(
            f"The workspace has {count:,} files and folders, as many as it may."
            " Nothing was written. Delete some, or ask the person to."
        )


def _changed(parts: list[str], new_text: str) -> Iterator[str]:
    """Yield the lines, with their numbers, that a new text between some parts has changed."""
    lines = new_text.join(parts).splitlines()
    numbers: dict[int, None] = {}
    last = 0
    for part in parts[:-1][:MAX_LINES_SHOWN]:
        first = last + part.count("\n")
        last = first + new_text.count("\n")
        numbers.update(dict.fromkeys(range(first, last + 1)))
    for number in list(numbers)[:MAX_LINES_SHOWN]:
        if number < len(lines):
            yield f"{number + 1}\t{lines[number]}"
    if (more := len(numbers) - MAX_LINES_SHOWN) > 0:
        yield f"[{counted(more, 'more line')} changed]"
