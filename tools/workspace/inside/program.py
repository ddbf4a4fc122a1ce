"""The program behind the walls: one request, one deed in the workspace, one text in return.

A request is an object: `do` names the deed, `bounds` says how much there may be in the workspace,
`by` for whom it is, and everything else are arguments of the deed.
"""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from sandbox.child import serve
from sandbox.errors import WorkError
from sandbox.rooted import open_below
from tools.workspace.inside import reading
from tools.workspace.inside.changing import Changes
from tools.workspace.inside.folder import CLOSED, Folder, said
from tools.workspace.inside.kept import Kept, NothingKept
from tools.workspace.inside.snapshots import Snapshots

_HERE: Final = -100  # AT_FDCWD: the folder that the walls stand around
FILES: Final = "files"
KEPT: Final = "kept"


class Deeds:
    """What can be asked for; the folder is opened with the first request."""

    def __init__(self) -> None:
        self._deeds: Mapping[str, Callable[..., str]] = {}
        self._keeping: Kept | NothingKept = NothingKept()

    def answer(self, request: str) -> str:
        """Do what a request says."""
        asked: dict[str, Any] = json.loads(request)
        bounds, by = asked.pop("bounds"), asked.pop("by", "")
        if not self._deeds:
            self._deeds, self._keeping = _opened(**bounds)
        self._keeping.by = by
        path = asked.get("file_path") or asked.get("directory") or "The workspace"
        with said(path):  # what a full or read-only disk refuses, wherever that is noticed
            return self._deeds[asked.pop("do")](**asked)


def _opened(
    *,
    quota_bytes: int,
    max_files: int,
    max_read_bytes: int,
    max_sent_bytes: int,
    is_shared: bool = False,
) -> tuple[Mapping[str, Callable[..., str]], Kept | NothingKept]:
    """Open the folder and return what can be done in it, and what keeps its versions."""
    keeping: Kept | NothingKept
    of_versions: dict[str, Callable[..., str]] = {}
    if is_shared:
        files, keeping = Folder(open_below(_HERE, ".", os.O_RDONLY | os.O_DIRECTORY)), NothingKept()
    else:
        files, kept = (Folder(_made(name)) for name in (FILES, KEPT))
        keeping = Kept(files, kept, most_bytes=quota_bytes)
        snapshots = Snapshots(files, kept, keeping)
        of_versions = {
            "before_command": snapshots.before_command,
            "after_command": snapshots.after_command,
            "last_change": snapshots.last_change,
            "undo": snapshots.undo,
        }
    changes = Changes(
        files,
        keeping,
        quota_bytes=None if is_shared else quota_bytes,
        max_files=max_files,
        most_bytes=max_read_bytes,
    )
    deeds: dict[str, Callable[..., str]] = {
        "usage": partial(reading.usage, files),
        "overview": partial(reading.overview, files, quota_bytes=quota_bytes),
        "list_files": partial(reading.list_files, files),
        "find_files": partial(reading.find_files, files),
        "file_info": partial(reading.file_info, files),
        "read_file": partial(reading.read_file, files, most_bytes=max_read_bytes),
        "search_files": partial(reading.search_files, files),
        "fetch": partial(reading.fetch, files, most_bytes=max_sent_bytes),
        "write_file": changes.write_file,
        "edit_file": changes.edit_file,
        "edit_notebook": changes.edit_notebook,
        "delete_file": changes.delete_file,
        "receive": changes.receive,
        **of_versions,
    }
    return deeds, keeping


def _made(name: str) -> int:
    """Open one of the two folders, which are made with the first request."""
    try:
        return open_below(_HERE, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        here = open_below(_HERE, ".", os.O_RDONLY | os.O_DIRECTORY)
        os.mkdir(name, 0o700, dir_fd=here)
        os.close(here)
        return open_below(_HERE, name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except PermissionError:
        raise WorkError(f"The workspace {CLOSED}") from None
    except OSError:
        raise WorkError("This workspace is damaged; !clear files makes it anew.") from None


if __name__ == "__main__":
    serve(Deeds().answer)
