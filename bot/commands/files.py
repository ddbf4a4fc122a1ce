"""`!files`: what is in this chat's workspace."""

from collections.abc import Callable
from typing import Final, Protocol

from bot.commands.base import CommandContext, Reply
from sandbox.errors import WorkError

NO_WORKSPACE: Final = "There is no workspace for files in this chat."


class ChatFolder(Protocol):
    """One chat's folder. Implemented by `tools.workspace.workspaces.Workspace`."""

    async def do(self, deed: str, **arguments: object) -> str:
        """Have something done and return what is said of it; raises WorkError."""
        ...


FolderOf = Callable[[CommandContext], ChatFolder | None]
"""Returns the folder of a chat; None where whoever asks has none there."""


class Files:
    """Lists the files of a chat."""

    name = "files"
    summary = "the files that I have in this chat"
    urgent = False

    def __init__(self, folder_of: FolderOf) -> None:
        self._folder_of = folder_of

    async def run(self, context: CommandContext) -> Reply:
        """List them, folders with a slash."""
        try:
            folder = self._folder_of(context)
            if folder is None:
                return Reply(NO_WORKSPACE)
            return Reply(await folder.do("overview"))
        except WorkError as error:
            return Reply(str(error))
