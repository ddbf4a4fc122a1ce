"""Deeds that read a workspace. The model reads the short docstrings of tools."""

import json
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import translate
from typing import Final

from tools.sandbox.errors import WorkError
from tools.texts import decoded
from tools.workspace.inside.folder import Entry, Files, counted, shown, steps_of
from tools.workspace.inside.texts import (
    BINARY_BYTES,
    NOTEBOOK,
    is_text,
    notebook_as_text,
)

MAX_LISTED: Final = 500
MAX_SHOWN: Final = 100
"""To a person."""
MAX_FOUND_LINES: Final = 200
MAX_LINE_CHARACTERS: Final = 2_000
MAX_PLACE_CHARACTERS: Final = 300
MAX_SEARCHED_BYTES: Final = 4 * 2**20
"""Of one file."""
SEARCH_SECONDS: Final = 5.0
MAX_PATTERNS: Final = 64
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_KILO: Final = 1_024


def overview(files: Files) -> str:
    """Return the list for a person: the sum, and each file with its size."""
    entries = [entry for entry in files.folder.walk() if not entry.is_folder]
    if not entries:
        return "There are no files in this chat."
    taken = _size(sum(entry.taken_bytes for entry in entries), _KILO**2)
    heading = f"{counted(len(entries), 'file')}, {taken} of {_size(files.quota_bytes, _KILO**2)}:"
    lines = [f"{shown(entry.path)} ({_size(entry.status.st_size)})" for entry in entries]
    return f"{heading}\n{_cut(lines, MAX_SHOWN)}"


def usage(files: Files) -> str:
    """Return how many bytes and entries there are, as JSON; null if they are too many."""
    taken = count = 0
    try:
        for entry in files.folder.walk(is_all=True):
            taken += entry.taken_bytes
            count += 1
    except WorkError:  # or too deep, or closed
        return json.dumps(None)
    return json.dumps([taken, count])


def list_files(
    files: Files, directory: str = ".", pattern: str = "*", *, recursive: bool = False
) -> str:
    """List files, newest first; people's are in inbox/."""
    fits = _pattern(pattern)
    with files.folder.folder(directory) as folder:
        found = [
            entry
            for entry in folder.walk(deep=recursive, inside=_prefix(directory))
            if fits.fullmatch(_compared(entry, pattern))
        ]
    found.sort(key=lambda entry: entry.status.st_mtime_ns, reverse=True)
    return _cut([*map(_listed, found)], MAX_LISTED) or "[Nothing is there.]"


def _listed(entry: Entry) -> str:
    if not entry.is_file:
        return shown(entry.path) + "/" * entry.is_folder
    changed = datetime.fromtimestamp(entry.status.st_mtime, UTC)
    size = counted(entry.status.st_size, "byte")
    return f"{shown(entry.path)} ({size}, {changed:%Y-%m-%d %H:%M} UTC)"


def read_file(files: Files, file_path: str, offset: int = 1, limit: int = 2_000) -> str:
    """Return lines of a text file with their numbers, from the one at `offset` on."""
    data, size = files.folder.read(file_path, files.max_read_bytes)
    if not is_text(data[:BINARY_BYTES]):
        raise WorkError(f"{shown(file_path)} is no text ({size:,} bytes), so it has no lines.")
    if not data:
        return "[The file is empty.]"
    is_whole = len(data) == size
    text, _ = decoded(data, is_whole=is_whole)
    if is_whole and file_path.lower().endswith(NOTEBOOK):
        with suppress(WorkError):  # then it is shown as it is
            text = notebook_as_text(text)
    cut = f"Only the first {files.max_read_bytes:,} of {size:,} bytes are read."
    lines = [_line(line) for line in text.splitlines()]
    return numbered(file_path, lines, offset, limit, note="" if is_whole else cut)


def numbered(file_path: str, lines: Sequence[str], offset: int, limit: int, note: str) -> str:
    """Return a part of some lines with their numbers, below it the number of lines left and a note.

    WorkError if there are fewer lines.
    """
    if offset > len(lines):
        raise WorkError(f"{shown(file_path)} has {counted(len(lines), 'line')}, and no more.")
    shown_lines = lines[offset - 1 : offset - 1 + limit]
    part = [f"{number}\t{line}" for number, line in enumerate(shown_lines, offset)]
    if left := len(lines) - (offset - 1 + len(part)):
        part.append(f"[{counted(left, 'more line')}; go on at offset {offset + len(part)}.]")
    if note:
        part.append(f"[{note}]")
    return "\n".join(part)


def search_files(
    files: Files,
    query: str,
    directory: str = ".",
    pattern: str = "*",
    *,
    regex: bool = False,
) -> str:
    """Search lines of text files.

    Args:
        pattern: Of file names.
    """
    try:
        wanted = re.compile(query if regex else re.escape(query), re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise WorkError(f"This is no regular expression: {error}.") from None
    fits = _pattern(pattern)
    found: list[str] = []
    ends_at = time.monotonic() + SEARCH_SECONDS
    with files.folder.folder(directory) as folder:
        for entry in folder.walk(inside=_prefix(directory)):
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


def _found_in(files: Files, entry: Entry, wanted: re.Pattern[str], most: int) -> Iterator[str]:
    try:
        data, _ = files.folder.read(entry.path, MAX_SEARCHED_BYTES)
    except WorkError:
        return  # gone, or replaced by something else, in the meantime
    if not is_text(data[:BINARY_BYTES]):
        return
    text, _ = decoded(data, is_whole=False)
    for number, line in enumerate(text.splitlines(), 1):
        if (place := wanted.search(line)) is not None:
            start = max(0, place.start() - MAX_PLACE_CHARACTERS // 3)
            words = line[start : start + MAX_PLACE_CHARACTERS]
            yield f"{shown(entry.path)}:{number}: {'…' if start else ''}{words}"
            most -= 1
            if most <= 0:
                return


def fetch(files: Files, file_path: str) -> str:
    """Return a whole file as Base64; WorkError if it is too large."""
    data, size = files.folder.read(file_path, files.max_sent_bytes)
    if size > files.max_sent_bytes:
        raise WorkError(
            f"{shown(file_path)} has {size:,} bytes; at most {files.max_sent_bytes:,} can be sent,"
            " or read as a document or an image."
        )
    if not data:
        raise WorkError(f"{shown(file_path)} is empty.")
    return b64encode(data).decode()


def _line(line: str) -> str:
    left_out = len(line) - MAX_LINE_CHARACTERS
    if left_out <= 0:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]}… [{left_out:,} characters left out]"


def _size(size: int, unit: int = 1) -> str:
    """Return a number of bytes in words, in at least this unit."""
    if max(size, unit) < _KILO:
        return counted(size, "byte")
    if max(size, unit) < _KILO**2:
        return f"{size / _KILO:.1f} kB"
    return f"{size / _KILO**2:.1f} MB"


def _prefix(directory: str) -> str:
    return "".join(f"{step}/" for step in steps_of(directory))


def _compared(entry: Entry, pattern: str) -> str:
    return entry.path if "/" in pattern else entry.path.rpartition("/")[2]


def _pattern(pattern: str) -> re.Pattern[str]:
    """Return the pattern that paths have to match; `*` matches slashes, too, as in `**/`.

    As in a shell, `{js,ts}` matches either word.
    """
    spelled = _spelled_out(pattern.replace("**/", "*").removeprefix("./"))
    return re.compile("|".join(map(translate, spelled)))


def _spelled_out(pattern: str) -> list[str]:
    """Return a pattern for each choice of the words in its braces, the innermost first."""
    left, done = [pattern], list[str]()
    while left:
        braces = _BRACES.search(one := left.pop())
        if braces is None:
            done.append(one)
        elif len(left) + len(done) + braces[1].count(",") >= MAX_PATTERNS:
            raise WorkError(f"A pattern may have {MAX_PATTERNS} choices in its braces, not more.")
        else:
            before, after = one[: braces.start()], one[braces.end() :]
            left += [f"{before}{word}{after}" for word in braces[1].split(",")]
    return done


def _cut(lines: list[str], most: int) -> str:
    if len(lines) > most:
        lines = [*lines[:most], f"[{len(lines) - most:,} more]"]
    return "\n".join(lines)
