"""What is in a workspace: lists, facts, lines and places."""

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import translate
from typing import Final

from sandbox.errors import WorkError
from tools.workspace.inside import notebooks
from tools.workspace.inside.folder import Entry, Folder, counted, read, shown
from tools.workspace.inside.texts import BINARY_BYTES, decoded, is_text

MAX_LISTED: Final = 500
MAX_SHOWN: Final = 100
"""To a person."""

MAX_FOUND_LINES: Final = 200
MAX_LINE_CHARACTERS: Final = 2_000
MAX_PLACE_CHARACTERS: Final = 300
MAX_SEARCHED_BYTES: Final = 4 * 2**20
"""Of one file."""
SEARCH_SECONDS: Final = 5.0
_KILO: Final = 1_024
_EMPTY: Final = "[The file is empty.]"


def overview(files: Folder, *, quota_bytes: int) -> str:
    """Return what a person is shown: the sum, and each file with its size."""
    entries = [entry for entry in files.walk() if not entry.is_folder]
    if not entries:
        return "There are no files in this chat."
    taken = sum(entry.taken_bytes for entry in entries)
    heading = f"{counted(len(entries), 'file')}, {_megabytes(taken)} of {_megabytes(quota_bytes)}:"
    lines = [f"{shown(entry.path)} ({_size(entry.status.st_size)})" for entry in entries]
    return "\n".join([heading, _cut(lines, MAX_SHOWN)])


def usage(files: Folder) -> str:
    """Return how many bytes and how many entries there are, as JSON; null if they are too many."""
    taken = count = 0
    try:
        for entry in files.walk(is_all=True):
            taken += entry.taken_bytes
            count += 1
    except WorkError:  # or too deep, or closed
        return json.dumps(None)
    return json.dumps([taken, count])


def list_files(files: Folder, directory: str = ".", *, recursive: bool = False) -> str:
    """Return one path a line; folders end in a slash."""
    inside = _prefix(directory)
    with files.folder(directory) as folder:
        entries = list(folder.walk(deep=recursive, inside=inside))
    lines = [f"{shown(entry.path)}{'/' if entry.is_folder else ''}" for entry in entries]
    return _cut(lines, MAX_LISTED) or "[Nothing is there.]"


def find_files(files: Folder, pattern: str, directory: str = ".") -> str:
    """Return the paths that a pattern fits, newest first."""
    fits = _pattern(pattern)
    with files.folder(directory) as folder:
        found = [
            entry
            for entry in folder.walk(inside=_prefix(directory))
            if not entry.is_folder and fits.fullmatch(_compared(entry, pattern))
        ]
    found.sort(key=lambda entry: entry.status.st_mtime_ns, reverse=True)
    return _cut([shown(entry.path) for entry in found], MAX_LISTED) or "[No file fits.]"


def file_info(files: Folder, file_path: str) -> str:
    """Return what is known of a path."""
    try:
        status = files.status(file_path)
    except WorkError as error:
        return f"exists: no ({error})"
    entry = Entry(file_path, status)
    kind = "folder" if entry.is_folder else "file" if entry.is_file else "neither file nor folder"
    changed = datetime.fromtimestamp(status.st_mtime, UTC)
    lines = ["exists: yes", f"kind: {kind}", f"modified: {changed:%Y-%m-%d %H:%M:%S} UTC"]
    if entry.is_file:
        lines.insert(2, f"size: {status.st_size:,} bytes")
        with files.file(file_path) as (descriptor, _):
            lines.append(f"text: {'yes' if is_text(read(descriptor, BINARY_BYTES)) else 'no'}")
    return "\n".join(lines)


def read_file(
    files: Folder, file_path: str, offset: int = 1, limit: int = 2_000, *, most_bytes: int
) -> str:
    """Return lines of a file with their numbers, from the one at `offset` on."""
    with files.file(file_path) as (descriptor, status):
        data = read(descriptor, most_bytes)
    if not is_text(data[:BINARY_BYTES]):
        raise WorkError(
            f"{shown(file_path)} is no text ({status.st_size:,} bytes), so it has no lines."
        )
    if not data:
        return _EMPTY
    is_whole = len(data) == status.st_size
    text = decoded(data, is_whole=is_whole).text
    if is_whole and file_path.lower().endswith(notebooks.SUFFIX):
        with suppress(WorkError):  # then it is shown as it is
            text = notebooks.as_text(text)
    lines = text.splitlines()
    if offset > len(lines):
        raise WorkError(f"{shown(file_path)} has {counted(len(lines), 'line')}, and no more.")
    part = lines[offset - 1 : offset - 1 + limit]
    numbered = [f"{number}\t{_line(line)}" for number, line in enumerate(part, offset)]
    left = len(lines) - (offset - 1 + len(part))
    if status.st_size > len(data):
        numbered.append(f"[Only the first {most_bytes:,} of {status.st_size:,} bytes are read.]")
    elif left:
        numbered.append(f"[{counted(left, 'more line')}; go on at offset {offset + len(part)}.]")
    return "\n".join(numbered)


def search_files(
    files: Folder,
    query: str,
    directory: str = ".",
    pattern: str = "*",
    *,
    recursive: bool = True,
    regex: bool = False,
    case_sensitive: bool = False,
) -> str:
    """Return the lines that a text or a regular expression is found in."""
    try:
        wanted = re.compile(
            query if regex else re.escape(query), 0 if case_sensitive else re.IGNORECASE
        )
    except (re.error, RecursionError, OverflowError) as error:
        raise WorkError(f"This is no regular expression: {error}.") from None
    fits = _pattern(pattern)
    found: list[str] = []
    ends_at = time.monotonic() + SEARCH_SECONDS
    with files.folder(directory) as folder:
        for entry in folder.walk(deep=recursive, inside=_prefix(directory)):
            if not entry.is_file or not fits.fullmatch(_compared(entry, pattern)):
                continue
            if time.monotonic() > ends_at:
                found.append(f"[Stopped after {SEARCH_SECONDS:g} seconds; search a part of it.]")
                break
            found += _found_in(files, entry, wanted, MAX_FOUND_LINES + 1 - len(found))
            if len(found) > MAX_FOUND_LINES:
                found[MAX_FOUND_LINES:] = ["[More lines fit; search for something rarer.]"]
                break
    return "\n".join(found) or "[Nothing was found.]"


def _found_in(files: Folder, entry: Entry, wanted: re.Pattern[str], most: int) -> Iterator[str]:
    try:
        with files.file(entry.path) as (descriptor, _):
            data = read(descriptor, MAX_SEARCHED_BYTES)
    except WorkError:
        return  # gone, or exchanged for something else, meanwhile
    if not is_text(data[:BINARY_BYTES]):
        return
    for number, line in enumerate(decoded(data, is_whole=False).text.splitlines(), 1):
        if (place := wanted.search(line)) is not None:
            start = max(0, place.start() - MAX_PLACE_CHARACTERS // 3)
            words = line[start : start + MAX_PLACE_CHARACTERS]
            yield f"{shown(entry.path)}:{number}: {'…' if start else ''}{words}"
            most -= 1
            if most <= 0:
                return


def fetch(files: Folder, file_path: str, *, most_bytes: int) -> str:
    """Return a whole file as Base64; WorkError where it is too large."""
    with files.file(file_path) as (descriptor, status):
        if status.st_size > most_bytes:
            raise WorkError(
                f"{shown(file_path)} has {status.st_size:,} bytes;"
                f" at most {most_bytes:,} can be sent, or read as a document or an image."
            )
        data = read(descriptor, most_bytes)
    if not data:
        raise WorkError(f"{shown(file_path)} is empty.")
    return b64encode(data).decode()


def _line(line: str) -> str:
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return (
        f"{line[:MAX_LINE_CHARACTERS]}… [{len(line) - MAX_LINE_CHARACTERS:,} characters left out]"
    )


def _size(size: int) -> str:
    if size < _KILO:
        return counted(size, "byte")
    return f"{size / _KILO:.1f} kB" if size < _KILO**2 else _megabytes(size)


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MB"


def _prefix(directory: str) -> str:
    steps = [step for step in directory.split("/") if step not in {"", "."}]
    return "".join(f"{step}/" for step in steps)


def _compared(entry: Entry, pattern: str) -> str:
    return entry.path if "/" in pattern else entry.path.rpartition("/")[2]


def _pattern(pattern: str) -> re.Pattern[str]:
    """Return what a path has to fit; `*` stands for slashes, too, as in `**/`."""
    return re.compile(translate(pattern.replace("**/", "*").removeprefix("./")))


def _cut(lines: list[str], most: int) -> str:
    if len(lines) > most:
        lines = [*lines[:most], f"[{len(lines) - most:,} more]"]
    return "\n".join(lines)
