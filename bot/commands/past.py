"""Commands about the past: `!find` searches it, `!sent` lists what was sent for an answer."""

from typing import Final

from bot.commands.base import CommandContext, Refused, check_admin, command
from conversation_store.outgoing import Outgoing
from tools.display import one_line
from tools.search_chat import FOREVER_MS, MAX_QUERY_CHARACTERS, Found, line

MAX_FOUND: Final = 10
NAMELESS: Final = "Somebody"
ME: Final = "🤖"
"""The bot, as the author of an answer."""
HOW_TO_FIND: Final = "Send !find and the words that you look for, such as !find train ticket."
FOUND: Final = "I found this here:"
NOTHING_FOUND: Final = (
    "I found no message with these words here. I keep messages to me, and my answers, for {days}"
    " days."
)
KEEPS_NOTHING: Final = "I am set up to forget everything after an answer."

NO_ANSWER: Final = "I have given no answer here that I could tell you about."
NOT_KEPT: Final = "I no longer keep that answer, so I cannot list what this machine sent for it."
NOTHING_LEFT: Final = "For that answer, this machine sent nothing, except through Signal."
LEFT: Final = "For that answer, this machine sent the following, not counting Signal:"
SHOWN_CHARACTERS: Final = 300
KILOBYTE: Final = 1_000


@command("find", "find earlier messages here by their words", changes="never")
async def find(context: CommandContext) -> str:
    """Search a chat; see `SearchStore.find`."""
    parts, query = context.parts, context.argument[:MAX_QUERY_CHARACTERS]
    if not query:
        return HOW_TO_FIND
    if not (days := parts.store.retention_days):
        return KEEPS_NOTHING
    found = await parts.store.search.find(
        context.chat, query, MAX_FOUND, reader=context.inbox_id, since=0, until=FOREVER_MS
    )
    if not found:
        return NOTHING_FOUND.format(days=days)
    zone = await parts.store.reminders.zone_of(context.author.aci) or "UTC"
    lines = [FOUND]
    for one in found:
        author = "" if one.by_bot else one.author_name or NAMELESS
        shown = Found(author, one_line(_without_tables(one.text)), one.sent_at)
        lines.append(f"• {line(shown, query, zone, bot=ME)}")
    return "\n".join(lines)


def _without_tables(text: str) -> str:
    """Return a text of Markdown with the cells of its tables as words."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(
        ", ".join(filter(None, map(str.strip, line.split("|")))) if line.startswith("|") else line
        for line in lines
        if not (line.startswith("|") and {*line} <= {*"|-: "})
    )


@command(
    "sent",
    "list what this machine sent for the answer that you reply to, or for the last one",
    changes="never",
)
async def sent(context: CommandContext) -> str:
    """List the ledger of an answer of this chat; in a group only for its asker and admins."""
    store = context.parts.store
    if context.replies_to is not None:
        answer = await store.outgoing.answered_as(context.chat, context.replies_to)
    else:
        question = await store.turns.last_question(context.chat, context.inbox_id, or_stopped=False)
        answer = None if question is None else (question.turn, question.asker)
    if answer is None:
        raise Refused(NO_ANSWER)
    turn, asker = answer
    await check_admin(context, asker)
    if await store.turns.find(turn) is None:
        raise Refused(NOT_KEPT)
    entries = await store.outgoing.of_turn(turn)
    if not entries:
        return NOTHING_LEFT
    return "\n".join((LEFT, *map(_entry, entries)))


LINES: Final = {
    "model": "• Model {what} at {where}, not proven: {size} (requests: {count})",
    "model, proven": "• Model {what} at {where}, proven: {size} (requests: {count})",
    "recording": "• Voice note to {where}, for transcription: {size}",
    "speech": "• Answer to {where}, for text-to-speech: {size}",
    "search": "• Web search at {where}: “{what}”",
    "page": "• Web page of {where}: {what}",
    "place": "• Name of a place to {where}, for the weather: “{what}”",
    "tool": "• MCP server {where}: {what}",
    "file": "• File with the answer: {what} ({size})",
}


def _entry(entry: Outgoing) -> str:
    """Return one line about something that left."""
    what = " ".join(entry.detail.split())
    return LINES[f"{entry.kind}, proven" if entry.is_proven else entry.kind].format(
        what=what if len(what) <= SHOWN_CHARACTERS else f"{what[:SHOWN_CHARACTERS]}…",
        where=entry.target,
        size=_size(entry.bytes),
        count=entry.requests,
    )


def _size(count: int) -> str:
    return f"{count / KILOBYTE:,.1f} kB"
