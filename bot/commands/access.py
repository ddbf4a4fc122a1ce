"""Permissions: `!pair` lets a person in, `!trust` trusts a new key, `!grants` lists approvals."""

from collections.abc import Sequence
from typing import Final

from bot.commands.base import CommandContext, Reply, command, day
from bot.errors import SignalError, SignalRejected
from conversation_store.questions import StoredGrant
from tools.display import visible

NO_CODE: Final = "Send !pair and the code that somebody got from me, such as !pair K7MPXQ"
UNKNOWN_CODE: Final = "I know no such code. It may have expired: codes are valid for one hour."

NO_WORD: Final = "Send !trust and the code, or the 60 digits, from my note about a safety number."
NO_SUCH_KEY: Final = (
    "I know no new safety number with that code or those digits. A code is valid for a week. If you"
    " run signal-cli, `signal-cli trust` does the same."
)
ANOTHER_KEY: Final = (
    "That safety number is no longer the newest one, or Signal refuses it: nothing is trusted. If"
    " there is a new number, I send you a note about it."
)
NOT_NOW: Final = "Signal does not do that right now. Please try again later."

NO_GRANTS: Final = "Nothing is allowed here permanently: I ask each time."
HOW: Final = "!grants revoke and its number takes one back, !grants revoke all takes back all."
UNKNOWN_GRANT: Final = "There is no such number. Send !grants to see them."
REVOKED: Final = "From now on I ask again: {what}."
REVOKE: Final = "revoke"
ALL: Final = "all"


@command("pair", "let somebody in with the code that I gave them", allowed="admins")
async def pair(context: CommandContext) -> Reply:
    """Admit the owner of a code."""
    let_in = context.parts.people.let_in
    if not context.argument or let_in is None:
        return Reply(NO_CODE)
    person = await let_in(context.argument)
    if person is None:
        return Reply(UNKNOWN_CODE)
    return Reply(f"{person.name or person.number or 'Somebody'} can talk to me now.")


@command("trust", "trust somebody's new safety number", allowed="admins")
async def trust(context: CommandContext) -> Reply:
    """Trust the new key of a person."""
    if not context.argument:
        return Reply(NO_WORD)
    try:
        whose = await context.parts.people.trust(context.argument)
    except SignalRejected:
        return Reply(ANOTHER_KEY)
    except SignalError:
        return Reply(NOT_NOW)
    if whose is None:
        return Reply(NO_SUCH_KEY)
    return Reply(f"Trusted. {whose} can talk to me now, and I send the waiting messages.")


def _only_lists(argument: str) -> bool:
    return argument.split()[:1] != [REVOKE]


@command(
    "grants",
    "show what I may do here without asking, and take it back",
    allowed="group_admins",
    urgent=_only_lists,
)
async def grants(context: CommandContext) -> Reply:
    """List the tools that need no approval in this chat, or revoke some by their numbers."""
    book = context.parts.store.grants
    found = await book.of_chat(context.chat)
    if _only_lists(context.argument):
        return Reply(_listed(found))
    chosen = _chosen(found, context.argument.split()[1:])
    if not chosen:
        return Reply(UNKNOWN_GRANT)
    await book.revoke(context.chat, [grant.id for grant in chosen])
    return Reply(REVOKED.format(what=", ".join(visible(grant.subject) for grant in chosen)))


def _listed(found: Sequence[StoredGrant]) -> str:
    if not found:
        return NO_GRANTS
    lines = [
        f"{number}. {visible(grant.subject)}, until {day(grant.expires_at)}"
        for number, grant in enumerate(found, 1)
    ]
    return "\n".join([*lines, HOW])


def _chosen(found: Sequence[StoredGrant], words: Sequence[str]) -> Sequence[StoredGrant]:
    if words == [ALL]:
        return found
    numbers = {str(number): grant for number, grant in enumerate(found, 1)}
    return [numbers[word] for word in words] if words and set(words) <= set(numbers) else []
