"""Deletes folders that strangers' programs may have filled: deep, wide, or closed."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from tools.workspace.rights import open_up

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_RUN: Final = secrets.token_hex(8)
"""In names that nothing has that was there before."""


def remove_tree(folder: Path) -> bool:
    """Delete a folder with all that is in it, as far as it can be; return whether it is gone.

    Folders inside are brought to the top before they are emptied, so that it takes neither
    recursion nor long paths, however deep they are. No link is followed.
    """
    with suppress(OSError):
        root = os.open(folder, _OPEN)
        try:
            _empty(root)
        finally:
            os.close(root)
        folder.rmdir()
    return not os.path.lexists(folder)


def _empty(root: int) -> None:
    brought = 0
    while names := os.listdir(root):
        for name in names:
            if not _is_folder(name, root):
                os.unlink(name, dir_fd=root)
                continue
            inside = _opened(name, root)
            try:
                for child in os.listdir(inside):  # noqa: PTH208 - as above
                    if _is_folder(child, inside):
                        open_up(child, inside)  # a closed one could not be moved
                        brought += 1
                        os.rename(child, f".{_RUN}.{brought}", src_dir_fd=inside, dst_dir_fd=root)
                    else:
                        os.unlink(child, dir_fd=inside)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=root)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _opened(name: str, parent: int) -> int:
    open_up(name, parent)
    return os.open(name, _OPEN, dir_fd=parent)
