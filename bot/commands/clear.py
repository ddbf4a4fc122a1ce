"""`!clear`: the bot forgets this conversation, or deletes its files.

What it was asked to remember stays, as it was asked for; the answer says how that is forgotten.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, group_refusal
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId
from sandbox.errors import WorkError

FILES: Final = "files"
NO_FILES: Final = "There is no workspace for files in this chat."
FILES_GONE: Final = "The files of this chat are deleted."
STILL_REMEMBERED: Final = (
    "I still know what I was asked to remember here. !memory forget all forgets that as well."
)
REMINDERS_STAY: Final = "Reminders still come. !reminders lists them and cancels them."
INSTRUCTIONS_STAY: Final = "The instructions of this chat still hold. !instructions off ends them."


class Remembered(Protocol):
    """What is remembered in chats. Implemented by `MemoryStore`."""

    async def of_chat(self, chat: ChatId) -> Sequence[object]:
        """Return the facts of a chat."""
        ...


class Instructed(Protocol):
    """How the bot is to be in chats. Implemented by `InstructionStore`."""

    async def of_chat(self, chat: ChatId) -> object | None:
        """Return the instructions of a chat; None where it has none."""
        ...


class Conversations(Protocol):
    """What was said in chats. Implemented by `bot.dispatch.turns.running.Turns`."""

    async def clear(self, chat: ChatId) -> int:
        """Forget the conversation of a chat, and return how many turns that were."""
        ...


class Reminded(Protocol):
    """What is still to come in chats. Implemented by `ReminderStore`."""

    async def are_in(self, chat: ChatId) -> bool:
        """Whether there are reminders in a chat."""
        ...


class Clear:
    """Forgets the conversation, or deletes its files, if the one who asks may decide that.

    Args:
        conversations: what is forgotten.
        groups: who administers them.
        admins: of the bot.
        memory: what stays and can be forgotten by another command.
        instructions: what stays as well.
        reminders: what stays as well.
        clear_files: deletes the files of a chat; None where no chat has any.
    """

    name = "clear"
    summary = "forget this conversation"
    urgent = False

    def __init__(
        self,
        conversations: Conversations,
        groups: Messenger,
        admins: AdminList,
        *,
        memory: Remembered,
        instructions: Instructed,
        reminders: Reminded,
        clear_files: Callable[[ChatId], Awaitable[None]] | None,
    ) -> None:
        self._conversations = conversations
        self._groups = groups
        self._admins = admins
        self._memory = memory
        self._instructions = instructions
        self._reminders = reminders
        self._clear_files = clear_files

    async def run(self, context: CommandContext) -> Reply:
        """Forget, and say so."""
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        if context.argument.casefold() == FILES:
            return await self._without_files(context)
        forgotten = await self._conversations.clear(context.chat)
        lines = ["Forgotten. We start afresh." if forgotten else "There was nothing to forget."]
        if await self._memory.of_chat(context.chat):
            lines.append(STILL_REMEMBERED)
        if await self._instructions.of_chat(context.chat) is not None:
            lines.append(INSTRUCTIONS_STAY)
        if await self._reminders.are_in(context.chat):
            lines.append(REMINDERS_STAY)
        return Reply("\n".join(lines))

    async def _without_files(self, context: CommandContext) -> Reply:
        if self._clear_files is None:
            return Reply(NO_FILES)
        try:
            await self._clear_files(context.chat)
        except WorkError as error:
            return Reply(str(error))
        return Reply(FILES_GONE)
