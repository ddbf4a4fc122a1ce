"""`!instructions`: how the bot is to be in this chat; they outlive `!clear`."""

from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, group_refusal
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId
from conversation_store.models import Instructions as Kept

MAX_CHARACTERS: Final = 1_000

NONE: Final = "There are no instructions here."
SHOWN: Final = "This is how I am to be here:"
HOW: Final = (
    "Send !instructions and how I should be here, such as: answer in German, briefly, as a tutor."
)
END: Final = "!instructions off ends that."
SET: Final = "From now on I keep to this here:"
DISAPPEARS: Final = "That ends when your message disappears."
STAYS: Final = "That holds until !instructions off."
ENDED: Final = "From now on I am here as usual."
TOO_LONG: Final = "That is too long: please keep it within {most} characters. It has {count}."
OFF: Final = "off"


class Book(Protocol):
    """The instructions of chats. Implemented by `InstructionStore`."""

    async def of_chat(self, chat: ChatId) -> Kept | None:
        """Return a chat's instructions; None where it has none."""
        ...

    async def put(self, chat: ChatId, text: str, inbox_id: int) -> Kept | None:
        """Keep instructions that a message gave; None where that is gone."""
        ...

    async def end(self, chat: ChatId) -> bool:
        """Forget a chat's instructions; False where it had none."""
        ...


class InstructionsCommand:
    """Shows, sets and ends the instructions of a chat.

    Args:
        book: keeps them.
        groups: knows who administers a group.
        admins: who administers the bot.
    """

    name = "instructions"
    summary = "how I am to be in this chat: language, tone, role"
    urgent = False

    def __init__(self, book: Book, groups: Messenger, admins: AdminList) -> None:
        self._book = book
        self._groups = groups
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Show them, or change them and show what holds now, which a group reads as well."""
        wanted = context.argument
        if not wanted:
            return await self._show(context.chat)
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        if wanted.casefold() == OFF:
            return Reply(ENDED if await self._book.end(context.chat) else NONE)
        if len(wanted) > MAX_CHARACTERS:
            return Reply(TOO_LONG.format(most=MAX_CHARACTERS, count=len(wanted)))
        kept = await self._book.put(context.chat, wanted, context.inbox_id)
        if kept is None:
            return Reply("")  # to a message that is deleted
        lasts = STAYS if kept.expires_at is None else DISAPPEARS
        return Reply("\n".join((SET, _quoted(kept.text), lasts)))

    async def _show(self, chat: ChatId) -> Reply:
        kept = await self._book.of_chat(chat)
        if kept is None:
            return Reply(f"{NONE}\n{HOW}")
        return Reply("\n".join((SHOWN, _quoted(kept.text), END)))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
