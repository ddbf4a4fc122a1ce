"""`!pair`: an admin lets somebody in by the code that the bot gave him."""

from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, refusal
from conversation_store.models import PairedPerson

NO_CODE: Final = "Send !pair and the code that somebody got from me, such as !pair K7MPXQ"
UNKNOWN_CODE: Final = "I know no such code. It may have expired: codes are valid for one hour."


class Pairing(Protocol):
    """Who lets people in. Implemented by `bot.dispatch.incoming.pairing.Pairing`."""

    async def approve(self, code: str) -> PairedPerson | None:
        """Let in whom a code was given to; None for one that counts no more."""
        ...


class Pair:
    """Lets somebody in. Whoever is no admin finds no such command."""

    name = "pair"
    summary = "let somebody in by the code that I gave"
    urgent = False

    def __init__(self, pairing: Pairing, admins: AdminList) -> None:
        self._pairing = pairing
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Let in whom the code was given to, and say who that is."""
        if (refused := refusal(context, self._admins)) is not None:
            return refused
        if not context.argument:
            return Reply(NO_CODE)
        person = await self._pairing.approve(context.argument)
        if person is None:
            return Reply(UNKNOWN_CODE)
        return Reply(f"{person.name or person.number or 'Somebody'} can talk to me now.")
