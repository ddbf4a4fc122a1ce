"""The workspaces of all chats, seen from the bot: a folder each, and a sandbox that works in it."""

import asyncio
import json
import os
import posixpath
import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tools.base import ToolImage
from tools.sandbox.errors import WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy
from tools.settings import WorkspaceSettings
from tools.workspace.inside.folder import CLOSED, FILES
from tools.workspace.removal import give_back, remove_tree

PROGRAM: Final = "tools.workspace.inside.program"
MAX_OPEN: Final = 8
"""Chats whose idle process stays warm; the one used longest ago ends first."""
IDLE_SECONDS: Final = 120.0
CALL_SECONDS: Final = 9.0
MAX_SENT_BYTES: Final = 8 * 2**20
"""Size of a file that goes to the chat or comes from it."""
SHARED: Final = "shared"
_MEMORY_BYTES: Final = 256 * 2**20
_TRANSPORT_BYTES: Final = 16 * 2**20  # a file as Base64
_PATHS: Final = ("directory", "file_path")
_LISTING: Final = frozenset({"list_files", "search_files"})
"""Deeds whose results begin with a path on each line."""
_CHANGING: Final = frozenset({"write_file", "edit_file", "edit_notebook", "delete_file"})


View = Callable[[str, bytes], Awaitable[ToolImage | None]]
"""Returns an image for the model that answers a chat; None if that model sees no images."""


@dataclass(frozen=True, slots=True)
class _SharedFolder:
    """A folder of the machine that admins see in their workspaces, behind walls of its own."""

    path: Path
    writable: bool
    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Workspace:
    """One chat's folder.

    Attributes:
        sandbox: works in it.
        files: the folder that people know; the first deed makes it.
        bounds: see `tools.workspace.inside.folder.Files`.
        shared: folders of the machine that are seen in it, by their names.
    """

    sandbox: Sandbox
    files: Path
    bounds: Mapping[str, int]
    shared: Mapping[str, _SharedFolder]

    async def do(self, deed: str, **arguments: object) -> str:
        """Call a deed of `tools.workspace.inside.program`, and return its result.

        If a command has closed a file or folder, the owner gets it back first. WorkError says why
        something cannot be done.
        """
        request = {"do": deed, "bounds": self.bounds, "is_shared": False, **arguments}
        key = next((name for name in _PATHS if name in arguments), "")
        if self.shared and is_shared(str(arguments.get(key, ""))):
            return await self._do_in_shared(deed, request, key)
        try:
            return await self.sandbox.call(json.dumps(request))
        except WorkError as error:
            if not str(error).endswith(CLOSED):
                raise
        await self.give_back()
        return await self.sandbox.call(json.dumps(request))

    async def _do_in_shared(self, deed: str, request: dict[str, object], key: str) -> str:
        _, *steps = _steps(str(request[key]))
        names = ", ".join(self.shared)
        if not steps and deed == "list_files":
            return "\n".join(f"{SHARED}/{name}/" for name in self.shared)
        if not steps:
            raise WorkError(f"Name one of the folders in {SHARED}: {names}.")
        if (folder := self.shared.get(steps[0])) is None:
            raise WorkError(f"There is no such folder in {SHARED}: {names}.")
        prefix = f"{SHARED}/{steps[0]}"
        if deed in _CHANGING and not folder.writable:
            raise WorkError(f"{prefix} may only be read.")
        inside = {"is_shared": True, key: "/".join(steps[1:]) or "."}
        said = await folder.sandbox.call(json.dumps(request | inside))
        if deed not in _LISTING:
            return said
        lines = said.split("\n")
        return "\n".join(line if line.startswith("[") else f"{prefix}/{line}" for line in lines)

    async def give_back(self) -> None:
        """Give all files back to the owner; a command may have closed some to everybody."""
        await asyncio.to_thread(give_back, self.files.parent)

    async def usage(self) -> tuple[int, int] | None:
        """Return the bytes that all files take, and their number, folders among them.

        None if they are more, or deeper, than can be counted.
        """
        said = json.loads(await self.do("usage"))
        if said is None:  # perhaps a folder is closed
            await self.give_back()
            said = json.loads(await self.do("usage"))
        if said is None:
            return None
        try:
            disk_bytes, files = said
            return int(disk_bytes), int(files)
        except (ValueError, TypeError):
            raise WorkError("This workspace cannot be looked at.") from None

    async def fetch(self, file_path: str) -> bytes:
        """Return a whole file; WorkError if it is missing, or larger than MAX_SENT_BYTES."""
        try:
            return b64decode(await self.do("fetch", file_path=file_path), validate=True)
        except NotBase64:
            raise WorkError("This file cannot be read.") from None

    async def receive(self, name: str, data: bytes) -> str:
        """Put a file of at most MAX_SENT_BYTES into the inbox and return its path.

        The name has no slashes, and gets a number if it is taken. WorkError if the file exceeds the
        rest of the quota.
        """
        return await self.do("receive", name=name, data=b64encode(data).decode())


class Workspaces:
    """Provides the workspace of each chat as long as its context is open.

    Args:
        folder: contains the folders of all chats.
        name_of: makes a name of a chat that reveals nothing about it.
        view: makes images fit for models; None: models get none.
    """

    def __init__(
        self,
        folder: Path,
        settings: WorkspaceSettings,
        name_of: Callable[[str], str],
        policy: SandboxPolicy,
        view: View | None = None,
    ) -> None:
        self.view = view
        self._folder = folder
        self._settings = settings
        self._name_of = name_of
        self._policy = policy
        # In the order of their last use. A chat has one for ever, so that deeds never overlap.
        self._sandboxes: OrderedDict[str, Sandbox] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._bounds = {
            "quota_bytes": settings.quota_bytes,
            "max_files": settings.max_files,
            "max_read_bytes": settings.max_read_bytes,
            "max_sent_bytes": MAX_SENT_BYTES,
        }
        self._shared = {
            name: _SharedFolder(
                one.path, one.writable, self._sandbox(one.path, read_only=not one.writable)
            )
            for name, one in sorted(settings.folders.items())
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with AsyncExitStack() as sandboxes:
            for sandbox in self._sandboxes.values():
                sandboxes.push_async_exit(sandbox)
            for folder in self._shared.values():
                sandboxes.push_async_exit(folder.sandbox)
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def admins_only(self) -> bool:
        """Whether only admins of the bot have one."""
        return self._settings.for_ != "everyone"

    def is_shared(self, path: str) -> bool:
        """Return whether a path leads to a folder of the machine, for admins."""
        return bool(self._shared) and is_shared(path)

    def of(self, chat: str, *, sees_shared: bool = False) -> Workspace:
        """Return a chat's workspace, perhaps with the folders of the machine.

        It makes the chat's folder if it does not exist; WorkError if it cannot.
        """
        name = self._name_of(chat)
        folder = self._folder / name
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise WorkError(f"No workspace can be made: {error.strerror}.") from None
        with suppress(OSError):  # on a read-only disk, files can still be read
            os.utime(folder)  # the time of its last use
        sandbox = self._sandboxes.get(name)
        if sandbox is None:
            sandbox = self._sandboxes[name] = self._sandbox(folder)
        self._sandboxes.move_to_end(name)
        self._end_oldest()
        files = folder.absolute() / FILES
        return Workspace(sandbox, files, self._bounds, self._shared if sees_shared else {})

    async def clear(self, chat: str) -> None:
        """Delete all files of a chat; WorkError if some are still there."""
        name = self._name_of(chat)
        if (sandbox := self._sandboxes.pop(name, None)) is not None:
            await sandbox.__aexit__()
        if not await asyncio.to_thread(remove_tree, self._folder / name):
            raise WorkError("Some files could not be deleted.")

    async def forget_unused(self, seconds: float) -> int:
        """Delete the workspaces that were not used for so long; return how many."""
        return await asyncio.to_thread(self._forget_before, time.time() - seconds)

    def _forget_before(self, before: float) -> int:
        gone = 0
        with suppress(FileNotFoundError):
            for folder in list(self._folder.iterdir()):
                if folder.lstat().st_mtime < before:
                    gone += remove_tree(folder)
        return gone

    def _sandbox(self, folder: Path, *, read_only: bool = False) -> Sandbox:
        limits = Limits(
            memory_bytes=_MEMORY_BYTES,
            call_seconds=CALL_SECONDS,
            line_bytes=_TRANSPORT_BYTES,
            reply_bytes=_TRANSPORT_BYTES,
            idle_seconds=IDLE_SECONDS,
            folder=str(folder.absolute()),
            read_only=read_only,
            file_bytes=self._settings.quota_bytes,
        )
        return Sandbox(PROGRAM, limits, policy=self._policy)

    def _end_oldest(self) -> None:
        """End the processes that no call uses, but for those of the chats used last."""
        idle = [sandbox for sandbox in self._sandboxes.values() if sandbox.is_idle]
        for sandbox in idle[:-MAX_OPEN]:
            ending = asyncio.get_running_loop().create_task(sandbox.end_idle())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


def is_shared(path: str) -> bool:
    """Return whether a path, as it is written, leads to `shared` or below it."""
    return _steps(path)[:1] == [SHARED]


def _steps(path: str) -> list[str]:
    """Return a path's steps from the workspace on, as they are written; links lead elsewhere."""
    return posixpath.normpath(f"/{path}").strip("/").split("/")
