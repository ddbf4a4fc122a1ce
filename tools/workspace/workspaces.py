"""The workspaces of all chats, seen from the bot: a folder each, and a sandbox that works in it."""

import asyncio
import json
import os
import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sandbox.errors import WorkError
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.pool import Sandbox
from tools.settings import WorkspaceSettings
from tools.workspace.images import Viewer
from tools.workspace.inside.folder import CLOSED
from tools.workspace.removal import remove_tree
from tools.workspace.rights import give_back
from tools.workspace.shared import SharedFolders

FILES: Final = "files"
"""The part of a chat's folder that people know; the rest is kept for `!undo`."""
PROGRAM: Final = "tools.workspace.inside.program"
MAX_OPEN: Final = 8
"""Chats whose process stays warm; the one that was used longest ago ends first."""
IDLE_SECONDS: Final = 120.0
CALL_SECONDS: Final = 9.0
AUTHOR: Final = "author"
"""Before a person, where a name is made for what they changed."""
MAX_SENT_BYTES: Final = 8 * 2**20
"""Of a file that goes to the chat or comes from it."""
_MEMORY_BYTES: Final = 256 * 2**20
_TRANSPORT_BYTES: Final = 16 * 2**20  # a file as Base64


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a disk files take, and how many they are, folders among them."""

    disk_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Change:
    """What `undo` takes back.

    Attributes:
        at: when it was, in ms.
        is_own: it came of what the same person asked for.
    """

    at: int
    is_own: bool


class Workspace:
    """One chat's folder, for one person.

    Args:
        sandbox: works in it.
        folder: of the chat.
        settings: how much there may be in it.
        shared: folders of the machine that are seen in it; None: none.
        by: who changes files in it, by a name that tells nothing; empty: nobody does.

    Attributes:
        files: the folder that people know; it is there once something was done.
        quota_bytes: of all files together.
        max_files: folders among them.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        settings: WorkspaceSettings,
        shared: SharedFolders | None = None,
        by: str = "",
    ) -> None:
        self._sandbox = sandbox
        self._shared = shared
        self._by = by
        self.files = folder / FILES
        self.quota_bytes = settings.quota_bytes
        self.max_files = settings.max_files
        self._bounds = {
            "quota_bytes": settings.quota_bytes,
            "max_files": settings.max_files,
            "max_read_bytes": settings.max_read_bytes,
            "max_sent_bytes": MAX_SENT_BYTES,
        }

    async def do(self, deed: str, **arguments: object) -> str:
        """Have something done and return what is said of it.

        Where a command has closed what is needed for it, the owner is let in again first.

        Args:
            deed: one of those in `tools.workspace.inside.program`.
            arguments: its own.

        Raises:
            WorkError: it cannot be done; says why.
        """
        path = arguments.get("file_path", arguments.get("directory"))
        if self._shared is not None and path in self._shared:
            return await self._shared.do(deed, self._bounds, arguments)
        request = json.dumps({"do": deed, "bounds": self._bounds, "by": self._by, **arguments})
        try:
            return await self._sandbox.call(request)
        except WorkError as error:
            if not str(error).endswith(CLOSED):
                raise
        await self._give_back()
        return await self._sandbox.call(request)

    async def _give_back(self) -> None:
        """Let the owner into everything in the folder of the chat."""
        await asyncio.to_thread(give_back, self.files.parent)

    @property
    def shared_folders(self) -> Mapping[str, Path]:
        """The folders of the machine that are seen here, by their names."""
        return self._shared.paths if self._shared is not None else {}

    async def usage(self) -> Usage | None:
        """Return how much there is; None if it is more, or deeper, than can be counted.

        Raises:
            WorkError: it cannot be found out now.
        """
        said = json.loads(await self.do("usage"))
        if said is None:  # closed, perhaps
            await self._give_back()
            said = json.loads(await self.do("usage"))
        if said is None:
            return None
        try:
            disk_bytes, files = said
            return Usage(int(disk_bytes), int(files))
        except (ValueError, TypeError):
            raise WorkError("This workspace cannot be looked at.") from None

    async def last_change(self) -> Change | None:
        """Return what `undo` takes back; None where there is nothing.

        Raises:
            WorkError: it cannot be found out now.
        """
        said = json.loads(await self.do("last_change"))
        if said is None:
            return None
        try:
            at, by = said
            return Change(int(at), is_own=bool(by) and by == self._by)
        except (ValueError, TypeError):
            raise WorkError("This workspace cannot be looked at.") from None

    async def fetch(self, file_path: str) -> bytes:
        """Return a whole file.

        Raises:
            WorkError: there is none, or it is larger than MAX_SENT_BYTES.
        """
        try:
            return b64decode(await self.do("fetch", file_path=file_path), validate=True)
        except NotBase64:
            raise WorkError("This file cannot be read.") from None

    async def receive(self, name: str, data: bytes) -> str:
        """Put a file into the inbox and return its path.

        Args:
            name: that it is to have there, if it is free; without slashes.
            data: at most MAX_SENT_BYTES.

        Raises:
            WorkError: there is no room for it.
        """
        return await self.do("receive", name=name, data=b64encode(data).decode())


class Workspaces:
    """Provides the workspace of each chat as long as its context is open.

    Args:
        settings: where they are, and how large.
        name_of: makes a name of a chat, or of a person, that tells nothing of it.
        policy: what is demanded of walls.
        viewer: makes images fit for models; None: they are not shown.

    Attributes:
        viewer: as above.
    """

    def __init__(
        self,
        settings: WorkspaceSettings,
        name_of: Callable[[str], str],
        policy: SandboxPolicy,
        viewer: Viewer | None = None,
    ) -> None:
        self.viewer = viewer
        self._settings = settings
        self._name_of = name_of
        self._policy = policy
        self._open: OrderedDict[str, Sandbox] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._shared = SharedFolders(settings.shared, PROGRAM, self._limits(None), policy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sandbox in self._open.values():
            await sandbox.__aexit__(None, None, None)
        await self._shared.close()
        if self._ending:
            await asyncio.wait(self._ending)

    @property
    def admins_only(self) -> bool:
        """Whether only those who administer the bot have one."""
        return not self._settings.everyone

    def is_shared(self, path: str) -> bool:
        """Whether a path leads to a folder of the machine, for those who see them."""
        return path in self._shared

    def of(self, chat: str, *, person: str | None = None, sees_shared: bool = False) -> Workspace:
        """Return a chat's workspace; its folder is made if there is none yet.

        Args:
            chat: whose.
            person: for whom things are done in it; None: for nobody who changes anything.
            sees_shared: folders of the machine are in it.

        Raises:
            WorkError: the folder cannot be made.
        """
        name = self._name_of(chat)
        folder = self._settings.path / name
        try:
            self._settings.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise WorkError(f"No workspace can be made: {error.strerror}.") from None
        with suppress(OSError):  # where nothing can be written, what is there can still be read
            os.utime(folder)  # when it was used last
        sandbox = self._open.get(name)
        if sandbox is None:
            sandbox = self._open[name] = Sandbox(PROGRAM, self._limits(folder), policy=self._policy)
        self._open.move_to_end(name)
        while len(self._open) > MAX_OPEN:
            self._end_soon(self._open.popitem(last=False)[1])
        shared = self._shared if sees_shared else None
        # Not the name of their private chat's folder: whoever has both could tell that.
        by = "" if person is None else self._name_of(f"{AUTHOR} {person}")
        return Workspace(sandbox, folder.absolute(), self._settings, shared, by)

    async def clear(self, chat: str) -> None:
        """Delete all files of a chat, and what was kept of them; what works with them is ended.

        Raises:
            WorkError: some of them are still there.
        """
        name = self._name_of(chat)
        if (sandbox := self._open.pop(name, None)) is not None:
            await sandbox.__aexit__(None, None, None)
        if not await asyncio.to_thread(remove_tree, self._settings.path / name):
            raise WorkError("Some files could not be deleted.")

    async def forget_unused(self, seconds: float) -> int:
        """Delete the workspaces that were not used for so long; return how many."""
        before = time.time() - seconds
        return await asyncio.to_thread(self._forget_before, before)

    def _forget_before(self, before: float) -> int:
        gone = 0
        with suppress(FileNotFoundError):
            for folder in list(self._settings.path.iterdir()):
                if folder.lstat().st_mtime < before:
                    gone += remove_tree(folder)
        return gone

    def _limits(self, folder: Path | None) -> Limits:
        return Limits(
            memory_bytes=_MEMORY_BYTES,
            call_seconds=CALL_SECONDS,
            line_bytes=_TRANSPORT_BYTES,
            reply_bytes=_TRANSPORT_BYTES,
            idle_seconds=IDLE_SECONDS,
            folder=None if folder is None else str(folder.absolute()),
            file_bytes=self._settings.quota_bytes,
        )

    def _end_soon(self, sandbox: Sandbox) -> None:
        """End a sandbox beside what goes on; a call that is under way in it is broken off."""
        ending = asyncio.get_running_loop().create_task(sandbox.__aexit__(None, None, None))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
