"""`!pair`: an admin lets somebody in by the code that the bot gave him."""

from typing import Final, Protocol

from bot.commands.base import UNKNOWN_COMMAND, CommandContext, Reply
from bot.messaging.events import Person
from conversation_store.models import PairedPerson

NO_CODE: Final = "Send !pair and the code that somebody got from me, such as !pair K7MPXQ"
UNKNOWN_CODE: Final = "I know no such code. It may have expired: codes are valid for one hour."


class Doorkeeper(Protocol):
    """Who lets people in. Implemented by `bot.dispatch.pairing.Pairing`."""

    async def approve(self, code: str) -> PairedPerson | None:
        """Let in whom a code was given to; None for one that counts no more."""
        ...


class AdminList(Protocol):
    """Who administers the bot. Implemented by `bot.dispatch.access.Access`."""

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        ...


class Pair:
    """Lets somebody in. Whoever is no admin, or asks in a group, finds no such command."""

    name = "pair"
    summary = "let somebody in by a code (admins)"
    urgent = False

    def __init__(self, doorkeeper: Doorkeeper, admins: AdminList) -> None:
        self._doorkeeper = doorkeeper
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Let in whom the code was given to, and say who that is."""
        if context.chat.is_group or not self._admins.is_admin(context.author):
            return Reply(UNKNOWN_COMMAND)
        if not context.argument:
            return Reply(NO_CODE)
        person = await self._doorkeeper.approve(context.argument)
        if person is None:
            return Reply(UNKNOWN_CODE)
        return Reply(f"{person.name or person.number or 'Somebody'} can talk to me now.")
