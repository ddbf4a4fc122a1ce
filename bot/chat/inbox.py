"""Files that people send, put where tools find them later."""

import re
from collections.abc import Callable
from typing import Final

import structlog

from bot.chat.file_kinds import type_of_file
from bot.messaging.events import Person
from conversation_store.models import ReceivedFile, ReceivedMessage
from sandbox.errors import SandboxBug, WorkError
from tools.workspace.kinds import suffix_of
from tools.workspace.workspaces import MAX_SENT_BYTES, Workspaces

MAX_BYTES: Final = MAX_SENT_BYTES
MAX_NAME_CHARACTERS: Final = 80
NOT_KEPT: Final = "I could not put it into the workspace. {why}"

_NOT_OF_A_NAME: Final = re.compile(r"[^\w.()+ -]+")

log = structlog.get_logger()


class Inbox:
    """Puts files into the workspace of the chat that they came in.

    Args:
        workspaces: of all chats.
        is_admin: whether somebody administers the bot.
    """

    def __init__(self, workspaces: Workspaces, is_admin: Callable[[Person], bool]) -> None:
        self._workspaces = workspaces
        self._is_admin = is_admin

    def takes(self, message: ReceivedMessage) -> bool:
        """Whether the files of a message are kept: not where they are to disappear."""
        if message.view_once or message.expires_at is not None:
            return False
        author = Person(message.author, message.author_number)
        return not self._workspaces.admins_only or self._is_admin(author)

    async def keep(self, message: ReceivedMessage, file: ReceivedFile, data: bytes) -> str:
        """Put a file into the inbox and return its path.

        Raises:
            WorkError: it is not kept; says why.
        """
        try:
            workspace = self._workspaces.of(message.chat)
            return await workspace.receive(name_of(file), data)
        except SandboxBug:
            raise WorkError("It is not a file that I can keep.") from None


def name_of(file: ReceivedFile) -> str:
    """Return the name that a file has in the inbox: that of the sender, if it is harmless."""
    words = _NOT_OF_A_NAME.sub("-", file.name or "").strip(" .-")
    return words[-MAX_NAME_CHARACTERS:].strip(" .-") or f"file{suffix_of(type_of_file(file))}"
