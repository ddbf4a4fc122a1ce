"""`!trust`: an admin's word that a person's new safety number is that person's."""

from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, refusal
from bot.errors import SignalError, SignalRejected

USAGE: Final = "Send !trust and the code, or the 60 digits, from my note about a safety number."
NOBODY: Final = (
    "No key waits under that. A code counts for a week, and the digits have to be those of my"
    " note. Where signal-cli runs, `signal-cli trust` does the same."
)
ANOTHER_KEY: Final = (
    "That safety number is not the newest one any more, or Signal refuses it: nothing is trusted."
    " If there is a new number, I send you a note about it."
)
NOT_NOW: Final = "The Signal side does not do it right now. Please try again later."


class KeyKeeper(Protocol):
    """What trusts keys. Implemented by `bot.dispatch.incoming.identities.Identities`."""

    async def trust(self, word: str) -> str | None:
        """Trust the key behind a code or 60 digits; return whose, or None where none waits."""
        ...


class TrustCommand:
    """Trusts a key that waits for somebody's word. Whoever is no admin finds no such command."""

    name = "trust"
    summary = "trust somebody's new safety number"
    urgent = False

    def __init__(self, keys: KeyKeeper, admins: AdminList) -> None:
        self._keys = keys
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Trust it, and say whose it is."""
        if (refused := refusal(context, self._admins)) is not None:
            return refused
        if not context.argument:
            return Reply(USAGE)
        try:
            whose = await self._keys.trust(context.argument)
        except SignalRejected:
            return Reply(ANOTHER_KEY)
        except SignalError:
            return Reply(NOT_NOW)
        if whose is None:
            return Reply(NOBODY)
        return Reply(f"Trusted. {whose} can talk to me now, and what waited goes on its way.")
