"""`!trust`: an admin's word that a person's new safety number is that person's."""

from typing import Final, Protocol

from bot.commands.base import CommandContext, Reply
from bot.errors import SignalError, SignalRejected
from bot.messaging.events import Person

ONLY_ADMINS: Final = "Only an admin of the bot can do that, in a private chat with me."
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
    """What trusts keys. Implemented by `bot.dispatch.identities.Identities`."""

    async def trust(self, word: str) -> str | None:
        """Trust the key behind a code or 60 digits; return whose, or None where none waits."""
        ...


class AdminList(Protocol):
    """Who administers the bot. Implemented by `bot.dispatch.access.Access`."""

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        ...


class Trust:
    """Trusts a key that waits for somebody's word."""

    name = "trust"
    summary = "trust a new safety number (admins)"
    urgent = False

    def __init__(self, keys: KeyKeeper, admins: AdminList) -> None:
        self._keys = keys
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Trust it, and say whose it is."""
        if context.chat.is_group or not self._admins.is_admin(context.author):
            return Reply(ONLY_ADMINS)
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
