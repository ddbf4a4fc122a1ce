"""`!catchup`: whether members of a group can ask what they have missed."""

from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, group_refusal
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId

ON: Final = "on"
OFF: Final = "off"

IN_GROUP: Final = "Send that in the group that it is about."
KEPT: Final = (
    "I keep what people who may talk to me write in this group, for at most {days} days and no"
    " longer than messages last here, so that I can tell members what they have missed since they"
    " last wrote: here, or in private to whoever is a member then. I keep nothing of anybody else."
)
HOW_TO_END: Final = "An admin ends that with !catchup off, which deletes what I have kept."
NOT_KEPT: Final = "I keep nothing here to tell members what they have missed."
HOW_TO_BEGIN: Final = "An admin changes that with !catchup on."
ENDED: Final = (
    "From now on I keep nothing here for that. What I had kept is deleted, and I have forgotten my"
    " answers that told of it."
)
KEEPS_NOTHING: Final = "I am set to keep nothing past an answer, so I cannot tell what was missed."
USAGE: Final = "Send !catchup on or !catchup off."


class Book(Protocol):
    """Which groups have opted in. Implemented by `CatchUpStore`."""

    @property
    def kept_days(self) -> int:
        """How many days something is kept at most; 0: nothing is kept at all."""
        ...

    async def is_on(self, chat: ChatId) -> bool:
        """Whether a group has opted in."""
        ...

    async def switch_on(self, chat: ChatId) -> None:
        """Keep from now on what is said in a group."""
        ...

    async def switch_off(self, chat: ChatId) -> None:
        """Keep no more of a group, and forget what was kept."""
        ...


class CatchUp:
    """Says whether something is kept of a group, and lets its admins decide.

    The answer is the notice that everybody in the group reads.

    Args:
        book: what is kept.
        groups: knows who administers a group.
        admins: who administers the bot.
    """

    name = "catchup"
    summary = "in a group: whether members can ask me what they have missed"
    urgent = False

    def __init__(self, book: Book, groups: Messenger, admins: AdminList) -> None:
        self._book = book
        self._groups = groups
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Say what holds in the group, or change it."""
        if not context.chat.is_group:
            return Reply(IN_GROUP)
        wanted = context.argument.strip().casefold()
        if not wanted:
            return Reply(await self._what_holds(context.chat))
        if wanted not in {ON, OFF}:
            return Reply(USAGE)
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        return Reply(await self._switched(context.chat, on=wanted == ON))

    async def _switched(self, chat: ChatId, *, on: bool) -> str:
        if not on:
            await self._book.switch_off(chat)
            return ENDED
        if not self._book.kept_days:
            return KEEPS_NOTHING
        await self._book.switch_on(chat)
        return await self._what_holds(chat)

    async def _what_holds(self, chat: ChatId) -> str:
        if await self._book.is_on(chat) and self._book.kept_days:
            return f"{KEPT.format(days=self._book.kept_days)}\n{HOW_TO_END}"
        return f"{NOT_KEPT}\n{HOW_TO_BEGIN}"
