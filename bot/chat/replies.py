"""Replies without the model: to commands, and to messages that cannot be answered."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Final

from bot.chat.access import TokenBudget
from bot.chat.door import author_of
from bot.commands.base import (
    NEAREST_COMMAND,
    UNKNOWN_COMMAND,
    ChatTurns,
    Command,
    CommandContext,
    Parts,
    Reply,
)
from bot.commands.models import retry
from bot.commands.questions import plan
from conversation_store.models import AcceptedMessage, ReceivedMessage

COMMAND: Final = re.compile(r"!([a-z][\w-]*)$", re.IGNORECASE)
MAX_NAME_CHARACTERS: Final = 100

NO_WORDS: Final = "Yes? Write what you want to know in the same message."
BUG: Final = "Something went wrong on my side. Please try again; if it stays, tell the operator."
DISAPPEARED: Final = (
    "Your message disappeared before I could answer it. Please send it again if you still need it."
)

UNSEEN: Final = (
    "With your message I deleted an answer that nobody had seen yet. It also answered other"
    " messages: please send those again."
)


async def _unknown(name: str, context: CommandContext) -> str:
    """Name the nearest command, but to nobody one for admins."""
    known = [one.name for one in context.listed if one.allowed != "admins"]
    near = get_close_matches(name, known, n=1)
    return NEAREST_COMMAND.format(name=near[0]) if near else UNKNOWN_COMMAND


def parse_command(text: str, commands: Mapping[str, Command]) -> tuple[Command, str] | None:
    """Return the command in a text and its argument; None if the text is for the model.

    The name may be written with wide characters, or between marks that phones do not show.
    """
    first, argument = (*_without_marks(text).split(maxsplit=1), "", "")[:2]
    found = COMMAND.match(unicodedata.normalize("NFKC", first[:MAX_NAME_CHARACTERS]))
    if found is None:
        return None
    name = found[1].lower()
    command = commands.get(name) or Command("", "", partial(_unknown, name))
    return command, argument.strip()


def _without_marks(text: str) -> str:
    """Return a text without formatting characters around its first word."""
    begin = next((place for place, one in enumerate(text) if not _is_mark(one)), len(text))
    first, between, rest = text[begin:].partition(" ")
    return "".join(one for one in first if unicodedata.category(one) != "Cf") + between + rest


def _is_mark(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) == "Cf"


@dataclass(eq=False, repr=False, slots=True)
class Replies:
    """Finds replies that need no model."""

    commands: Mapping[str, Command]
    parts: Parts
    budget: TokenBudget

    def command_in(self, message: ReceivedMessage) -> tuple[Command, str] | None:
        """Return the command in a message and its argument, or None."""
        if message.kind == "scheduled":
            return None
        return parse_command(message.text, self.commands)

    async def to(
        self, pieces: Sequence[AcceptedMessage], turns: ChatTurns
    ) -> tuple[Reply, str] | None:
        """Return the reply to the messages of a turn, and its outcome; None if the model answers.

        Several messages always go to the model, but the first may be `!retry`.
        """
        accepted, message = pieces[0], pieces[0].message
        command, argument = self.command_in(message) or (None, "")
        if command is plan and argument:
            command = None  # the argument is a question for the model
        if len(pieces) > 1 and command is not retry:
            return None
        reply = None
        if command is not None:
            context = CommandContext(
                chat=message.chat,
                author=author_of(message),
                argument=argument,
                inbox_id=accepted.id,
                parts=self.parts,
                turns=turns,
                listed=tuple(self.commands.values()),
                replies_to=message.question_timestamp,
            )
            reply = await command.answer(context)
            if reply.retry is None:
                return reply, "command"
        elif message.expires_at is not None and message.expires_at <= self.parts.clock() * 1_000:
            return Reply(DISAPPEARED), "disappeared"
        elif not message.text.strip() and not message.files:
            return Reply(NO_WORDS), "no_words"
        used_up = None if accepted.begun else await self.budget.refusal(author_of(message))
        if used_up is not None:
            return Reply(used_up), "budget"
        return None if reply is None else (reply, "retry")
