"""`!clear`: the bot forgets this conversation."""

from typing import Final

from bot.commands.base import AdminList, CommandContext, Reply
from bot.errors import SignalError
from bot.messaging.messenger import Messenger
from conversation_store.sections.turns import TurnStore

ONLY_ADMINS: Final = "In a group only an admin of the group or of the bot can do that."
CANNOT_TELL: Final = "I cannot find out right now who administers this group. Try again later."


class Clear:
    """Forgets the conversation, if the one who asks may decide that."""

    name = "clear"
    summary = "forget this conversation"
    urgent = False

    def __init__(self, store: TurnStore, groups: Messenger, admins: AdminList) -> None:
        self._store = store
        self._groups = groups
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Forget, and say so."""
        if context.chat.is_group and not self._admins.is_admin(context.author):
            try:
                group = await self._groups.group(context.chat)
            except SignalError:
                return Reply(CANNOT_TELL)
            if group is None or not group.admins & {context.author.aci, context.author.number}:
                return Reply(ONLY_ADMINS)
        forgotten = await self._store.clear(context.chat)
        return Reply("Forgotten. We start afresh." if forgotten else "There was nothing to forget.")
