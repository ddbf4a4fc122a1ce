"""Files that people send, put where tools find them later."""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from bot.chat.file_kinds import type_of_file
from bot.signal.events import Person
from conversation_store.files import FileStore
from conversation_store.models import ReceivedFile, ReceivedMessage, WorkspaceFile
from tools.sandbox.errors import SandboxBug, WorkError
from tools.workspace.tool import suffix_of
from tools.workspace.workspaces import MAX_SENT_BYTES, Workspaces

MAX_BYTES: Final = MAX_SENT_BYTES
MAX_NAME_CHARACTERS: Final = 80
NOT_KEPT: Final = "I could not put it into the workspace. {why}"

_NOT_OF_A_NAME: Final = re.compile(r"[^\w.()+ -]+")

log = structlog.get_logger()


@dataclass(eq=False, repr=False, slots=True)
class Inbox:
    """Puts files into the workspace of the chat that they came in.

    Attributes:
        files: knows the message of each file, so that both are deleted together.
    """

    workspaces: Workspaces
    is_admin: Callable[[Person], bool]
    files: FileStore

    def takes(self, message: ReceivedMessage) -> bool:
        """Whether the files of a message are kept: not where they are to disappear."""
        if message.view_once or message.expires_at is not None:
            return False
        author = Person(message.author, message.author_number)
        return not self.workspaces.admins_only or self.is_admin(author)

    async def keep(self, message: ReceivedMessage, file: ReceivedFile, data: bytes) -> str:
        """Put a file into the inbox and return its path.

        Raises:
            WorkError: it is not kept; says why.
        """
        try:
            workspace = self.workspaces.of(message.chat)
            path = await workspace.receive(name_of(file), data)
            if not await self.files.add(message, path):
                await workspace.do("delete_file", file_path=path)
                raise WorkError("Its message was deleted.")
        except SandboxBug:
            raise WorkError("It is not a file that I can keep.") from None
        return path


async def delete_from(workspaces: Workspaces, file: WorkspaceFile) -> bool:
    """Delete a file from its chat's workspace; return whether it is gone."""
    try:
        workspace = workspaces.of(file.chat)
    except WorkError:
        return False
    with suppress(WorkError, SandboxBug):  # a command may have deleted or moved it before
        await workspace.do("delete_file", file_path=file.name)
    return not await asyncio.to_thread(os.path.lexists, workspace.files / file.name)


def name_of(file: ReceivedFile) -> str:
    """Return the name that a file has in the inbox: that of the sender, if it is harmless."""
    words = _NOT_OF_A_NAME.sub("-", file.name or "").strip(" .-")
    return words[-MAX_NAME_CHARACTERS:].strip(" .-") or f"file{suffix_of(type_of_file(file))}"
