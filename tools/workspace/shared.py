"""Folders of the machine that admins see in their workspaces, each behind walls of its own."""

import json
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from sandbox.errors import WorkError
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.pool import Sandbox
from tools.settings import SharedFolder

SHARED: Final = "shared"
_PATHS: Final = ("directory", "file_path")
_LISTING: Final = frozenset({"find_files", "list_files", "search_files"})
"""What these return begins with a path on each line."""
_CHANGING: Final = frozenset({"write_file", "edit_file", "edit_notebook", "delete_file"})


class SharedFolders:
    """Does in a folder of the machine what is asked for below `shared/NAME`.

    Args:
        folders: which there are.
        program: works in each of them.
        limits: of its process, but for its folder.
        policy: what is demanded of walls.
    """

    def __init__(
        self, folders: Sequence[SharedFolder], program: str, limits: Limits, policy: SandboxPolicy
    ) -> None:
        self._folders = {folder.name: folder for folder in folders}
        self._sandboxes = {
            folder.name: Sandbox(
                program,
                replace(limits, folder=str(folder.path), read_only=not folder.writable),
                policy=policy,
            )
            for folder in folders
        }

    @property
    def paths(self) -> Mapping[str, Path]:
        """Where the folders are."""
        return {name: folder.path for name, folder in self._folders.items()}

    async def close(self) -> None:
        """End all processes."""
        async with AsyncExitStack() as sandboxes:
            for sandbox in self._sandboxes.values():
                sandboxes.push_async_exit(sandbox)

    def __contains__(self, path: object) -> bool:
        """Whether a path leads to `shared`, or below it."""
        steps = _steps(str(path))
        return bool(self._folders) and steps[:1] == [SHARED]

    async def do(
        self, deed: str, bounds: Mapping[str, int], arguments: Mapping[str, object]
    ) -> str:
        """Have something done below `shared` and return what is said of it; raises WorkError."""
        key = next(name for name in _PATHS if name in arguments)
        _, *steps = _steps(str(arguments[key]))
        if not steps:
            if deed == "list_files":
                return "\n".join(f"{SHARED}/{name}/" for name in self._folders)
            raise WorkError(f"Name one of the folders in {SHARED}: {', '.join(self._folders)}.")
        folder = self._folders.get(steps[0])
        if folder is None:
            raise WorkError(f"There is no such folder in {SHARED}: {', '.join(self._folders)}.")
        if deed in _CHANGING and not folder.writable:
            raise WorkError(f"{SHARED}/{folder.name} may only be read.")
        inside = "/".join(steps[1:]) or "."
        request = {"do": deed, "bounds": {**bounds, "is_shared": True}, **arguments, key: inside}
        said = await self._sandboxes[folder.name].call(json.dumps(request))
        return _with_prefix(said, f"{SHARED}/{folder.name}/") if deed in _LISTING else said


def _steps(path: str) -> list[str]:
    """Return a path's steps from the workspace on, as they are written; links lead elsewhere."""
    return posixpath.normpath(f"/{path}").strip("/").split("/")


def _with_prefix(listed: str, prefix: str) -> str:
    return "\n".join(
        line if line.startswith("[") else f"{prefix}{line}" for line in listed.split("\n")
    )
