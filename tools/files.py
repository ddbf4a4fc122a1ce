"""What a person gets of the files that a tool returns: so many, so large, under harmless names."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tools.base import ToolFile

MAX_FILES: Final = 4
"""Of one call."""
MAX_FILE_BYTES: Final = 8 * 2**20
"""Of one file."""

_MAX_NAME_CHARACTERS: Final = 64
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.-]+")
_CONTENT_TYPE: Final = re.compile(r"[a-z]{1,32}/[a-z0-9.+-]{1,64}")
_ANY_TYPE: Final = "application/octet-stream"


def presentable(files: Sequence[ToolFile]) -> tuple[ToolFile, ...]:
    """Return those files that a person gets, with names and types that mean nothing else."""
    fitting = [file for file in files if 0 < len(file.data) <= MAX_FILE_BYTES]
    return tuple(_harmless(file) for file in fitting[:MAX_FILES])


def note_about(given: int, *, of: int) -> str:
    """Return what the model is told of files that the person does not get; empty where all go."""
    if given == of:
        return ""
    return (
        f"\n[The person gets {given} of {of} files: at most {MAX_FILES} are sent, "
        f"each of at most {MAX_FILE_BYTES // 2**20} MiB, and none that is empty.]"
    )


def _harmless(file: ToolFile) -> ToolFile:
    content_type = file.content_type.lower()
    return replace(
        file,
        name=_name(file.name),
        content_type=content_type if _CONTENT_TYPE.fullmatch(content_type) else _ANY_TYPE,
    )


def _name(name: str) -> str:
    """Return a name without a path or a leading dot; of a long one the end, with its suffix."""
    safe = _UNSAFE.sub("-", name.replace("\\", "/").rpartition("/")[2])
    return safe[-_MAX_NAME_CHARACTERS:].strip(".-") or "file"
