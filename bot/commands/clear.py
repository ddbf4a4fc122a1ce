"""`!clear`: the bot forgets this conversation, or deletes its files."""

from collections.abc import Awaitable, Callable
from typing import Final

from bot.commands.base import AdminList, CommandContext, Reply, group_refusal
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId
from conversation_store.sections.turns import TurnStore

FILES: Final = "files"
NO_FILES: Final = "There is no workspace for files in this chat."
FILES_GONE: Final = "The files of this chat are deleted."


class Clear:
    """Forgets the conversation, or deletes its files, if the one who asks may decide that.

    Args:
        store: has the conversations.
        groups: who administers them.
        admins: of the bot.
        clear_files: deletes the files of a chat; None where no chat has any.
    """

    name = "clear"
    summary = "forget this conversation"
    urgent = False

    def __init__(
        self,
        store: TurnStore,
        groups: Messenger,
        admins: AdminList,
        clear_files: Callable[[ChatId], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._groups = groups
        self._admins = admins
        self._clear_files = clear_files

    async def run(self, context: CommandContext) -> Reply:
        """Forget, and say so."""
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        if context.argument.casefold() == FILES:
            return await self._without_files(context)
        forgotten = await self._store.clear(context.chat)
        return Reply("Forgotten. We start afresh." if forgotten else "There was nothing to forget.")

    async def _without_files(self, context: CommandContext) -> Reply:
        if self._clear_files is None:
            return Reply(NO_FILES)
        await self._clear_files(context.chat)
        return Reply(FILES_GONE)
