"""Files that tools gave in a turn, until they go out with its answer."""

from collections.abc import Sequence
from typing import Final

from conversation_store.connections import Execute
from conversation_store.models import Attachment

MAX_FILES_BYTES: Final = 32 * 1024 * 1024
"""Of one turn; what does not fit any more is left out."""


def keep(execute: Execute, turn_id: int, files: Sequence[Attachment]) -> None:
    """Keep the files of a call as far as they fit; none of a turn that is gone."""
    if not files:
        return
    ((size,),) = execute(
        "SELECT coalesce(sum(length(data)), 0) FROM turn_files WHERE turn_id = ?", (turn_id,)
    )
    for file in files:
        if size + len(file.data) > MAX_FILES_BYTES:
            continue
        size += len(file.data)
        execute(
            "INSERT INTO turn_files (turn_id, name, content_type, data)"
            " SELECT id, ?, ?, ? FROM turns WHERE id = ?",
            (file.name, file.content_type, file.data, turn_id),
        )


def take(execute: Execute, turn_id: int) -> tuple[Attachment, ...]:
    """Return a turn's files and keep them no longer."""
    rows = list(
        execute(
            "SELECT name, content_type, data FROM turn_files WHERE turn_id = ? ORDER BY id",
            (turn_id,),
        )
    )
    files = tuple(Attachment(*row) for row in rows)
    if files:
        execute("DELETE FROM turn_files WHERE turn_id = ?", (turn_id,))
    return files
