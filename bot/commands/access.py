"""Permissions: `!pair` lets a person in, `!trust` trusts a new key, `!grants` lists approvals."""

from collections.abc import Sequence

from bot.commands.base import CommandContext, command, day
from bot.signal.errors import SignalError, SignalRejected
from conversation_store.questions import StoredGrant
from tools.display import visible


@command("pair", "let a person in with the code that I gave them", allowed="admins")
async def pair(context: CommandContext) -> str:
    """Admit the owner of a code."""
    let_in = context.parts.let_in
    if not context.argument or let_in is None:
        return "Send !pair and the code that I gave a person, such as !pair K7MPXQ."
    person = await let_in(context.argument)
    if person is None:
        return "I know no such code. It may have expired: codes are valid for one hour."
    return f"{person.name or person.number or 'Somebody'} can talk to me now."


@command("trust", "trust a person's new safety number", allowed="admins")
async def trust(context: CommandContext) -> str:
    """Trust the new key of a person."""
    if not context.argument:
        return "Send !trust and the code, or the 60 digits, from my note about a safety number."
    try:
        whose = await context.parts.trust(context.argument)
    except SignalRejected:
        return (
            "That safety number is no longer the newest one, or Signal refuses it: nothing is"
            " trusted. If there is a new number, I send you a note about it."
        )
    except SignalError:
        return "Signal does not do that right now. Please try again later."
    if whose is None:
        return (
            "I know no new safety number with that code or those digits. A code is valid for a"
            " week. If you run signal-cli, `signal-cli trust` does the same."
        )
    return f"Trusted. {whose} can talk to me now, and I send the waiting messages."


@command(
    "grants",
    "show what I may do here without asking, and take it back",
    allowed="group_admins",
    changes=("revoke",),
)
async def grants(context: CommandContext) -> str:
    """List the tools that need no approval in this chat, or revoke some by their numbers."""
    book = context.parts.store.grants
    found = await book.of_chat(context.chat)
    match context.argument.casefold().split():
        case ["revoke", "all"]:
            revoked = found
        case ["revoke", *words]:
            numbers = {str(number): grant for number, grant in enumerate(found, 1)}
            all_known = set(words) <= set(numbers)
            revoked = tuple(numbers[word] for word in words) if all_known else ()
        case _:
            return _listed(found)
    if not revoked:
        return "There is no such number. Send !grants to see them."
    await book.revoke(context.chat, [grant.id for grant in revoked])
    subjects = ", ".join(visible(grant.subject) for grant in revoked)
    return f"From now on I ask again: {subjects}."


def _listed(found: Sequence[StoredGrant]) -> str:
    if not found:
        return "Nothing is allowed here permanently: I ask each time."
    lines = [
        f"{number}. {visible(grant.subject)} (⏱ {day(grant.expires_at)})"
        for number, grant in enumerate(found, 1)
    ]
    how = "!grants revoke and its number takes one back, !grants revoke all takes back all."
    return "\n".join([*lines, how])
