"""The program behind the walls: one request, one deed in the workspace, one text in return.

A request is an object: `do` names the deed, `bounds` are the numbers of `Files`, and `is_shared` is
true for a folder of the machine. All other fields are arguments of the deed.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from tools.sandbox.child import serve
from tools.sandbox.errors import WorkError
from tools.sandbox.syscalls import open_below
from tools.workspace.inside import changing, reading
from tools.workspace.inside.folder import CLOSED, FILES, Files, Folder, said

_HERE: Final = -100  # AT_FDCWD: the folder that the walls stand around
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_DEEDS: Final[Mapping[str, Callable[..., str]]] = {
    deed.__name__: deed
    for deed in (
        *(reading.usage, reading.overview, reading.fetch, reading.list_files),
        *(reading.read_file, reading.search_files),
        *(changing.write_file, changing.edit_file, changing.edit_notebook),
        *(changing.delete_file, changing.receive),
    )
}
_opened: list[Files] = []


def answer(request: str) -> str:
    """Do what a request says; the first one opens the folder."""
    asked: dict[str, Any] = json.loads(request)
    bounds, is_shared = asked.pop("bounds"), asked.pop("is_shared")
    path = asked.get("file_path") or asked.get("directory") or "The workspace"
    with said(path):  # a full or read-only disk may refuse anywhere
        if not _opened:
            here = Folder(open_below(_HERE, ".", _FOLDER))
            folder, drafts = (here, None) if is_shared else (_folder_of_files(here), here)
            _opened.append(Files(folder=folder, drafts=drafts, **bounds))
        return _DEEDS[asked.pop("do")](_opened[0], **asked)


def _folder_of_files(here: Folder) -> Folder:
    """Open the folder of files; the first request makes it."""
    if here.status_here(FILES) is None:
        os.mkdir(FILES, 0o700, dir_fd=here.descriptor)
    try:
        return Folder(open_below(_HERE, FILES, _FOLDER))
    except PermissionError:
        raise WorkError(f"The workspace {CLOSED}") from None
    except OSError:
        raise WorkError("This workspace is damaged; !clear files makes it anew.") from None


if __name__ == "__main__":
    serve(answer)
