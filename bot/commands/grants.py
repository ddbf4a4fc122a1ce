"""`!grants`: what was allowed here for longer, and taking it back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, group_refusal
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId, StoredGrant
from tools.display import visible

NONE: Final = "Nothing is allowed here for longer: I ask each time."
HOW: Final = "!grants revoke and its number takes one back, !grants revoke all takes back all."
UNKNOWN: Final = "There is no such number. Send !grants to see them."
REVOKED: Final = "From now on I ask again: {what}."
REVOKE: Final = "revoke"
ALL: Final = "all"


class GrantBook(Protocol):
    """What is allowed for longer. Implemented by `conversation_store.sections.grants`."""

    async def of_chat(self, chat: ChatId) -> tuple[StoredGrant, ...]:
        """Return what is allowed in a chat now."""
        ...

    async def revoke(self, chat: ChatId, grants: Sequence[int]) -> None:
        """Allow something no longer."""
        ...


class Grants:
    """Lists what is allowed in a chat for longer, and takes it back.

    Args:
        book: keeps it.
        groups: knows who administers a group.
        admins: who administers the bot.
    """

    name = "grants"
    summary = "what I may do here without asking, and take it back"
    urgent = False

    def __init__(self, book: GrantBook, groups: Messenger, admins: AdminList) -> None:
        self._book = book
        self._groups = groups
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """List it, or take one of it back by its number."""
        words = context.argument.split()
        grants = await self._book.of_chat(context.chat)
        if words[:1] != [REVOKE]:
            return Reply(_listed(grants))
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        chosen = _chosen(grants, words[1:])
        if not chosen:
            return Reply(UNKNOWN)
        await self._book.revoke(context.chat, [grant.id for grant in chosen])
        return Reply(REVOKED.format(what=", ".join(visible(grant.subject) for grant in chosen)))


def _listed(grants: Sequence[StoredGrant]) -> str:
    if not grants:
        return NONE
    lines = [
        f"{number}. {visible(grant.subject)}, until {_day(grant.expires_at)}"
        for number, grant in enumerate(grants, 1)
    ]
    return "\n".join([*lines, HOW])


def _chosen(grants: Sequence[StoredGrant], words: Sequence[str]) -> Sequence[StoredGrant]:
    if words == [ALL]:
        return grants
    numbers = {str(number): grant for number, grant in enumerate(grants, 1)}
    return [numbers[word] for word in words] if words and set(words) <= set(numbers) else []


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d")
