"""What a chat command is."""

from dataclasses import dataclass
from typing import Final, Protocol

from bot.errors import SignalError
from bot.messaging.events import Person
from bot.messaging.messenger import Messenger
from conversation_store.models import Attachment, ChatId, Question, Retry

MAX_DIGITS: Final = 9
"""Of a number that people write; no list is longer, and the store takes no more than 18."""

UNKNOWN_COMMAND: Final = "I don't know that command. Send !help to see what I can do."
"""Also what commands for admins answer to everybody else."""
IN_PRIVATE: Final = "I do that only in our private chat."
"""What they answer to an admin in a group."""
ONLY_ADMINS: Final = "In a group only an admin of the group or of the bot can do that."
UNKNOWN_MODEL: Final = "There is no model of that name. Send !model to see which there are."
MODEL_NOT_PROVEN: Final = (
    "The model {name} has not proven who can read along there, and nothing is sent to such a model"
    " here. Please choose another one."
)
ONLY_ASKER: Final = (
    "In a group only who asked the last question, or an admin of the group or of the bot, can do"
    " that."
)
CANNOT_TELL: Final = "I cannot find out right now who administers this group. Try again later."


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A command as it was written.

    Attributes:
        chat: where.
        author: by whom.
        argument: what follows the command's word.
        inbox_id: number of its message; what was written later has a higher one.
    """

    chat: ChatId
    author: Person
    argument: str
    inbox_id: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A command's answer.

    Attributes:
        text: what is said; empty where nothing is.
        attachments: files that go with its first part.
        undone: a question that is forgotten, with its answer, in the step that stores this one.
        retry: the model is asked instead, and nothing else is said.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    undone: Question | None = None
    retry: Retry | None = None


class AdminList(Protocol):
    """Who administers the bot. Implemented by `bot.dispatch.incoming.access.Access`."""

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        ...


class Command(Protocol):
    """One command; one file each, listed in `bot.commands.catalog`."""

    @property
    def name(self) -> str:
        """The word, without the exclamation mark."""
        ...

    @property
    def summary(self) -> str:
        """What it does, for `!help`."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether it must not wait behind the chat's running turn."""
        ...

    async def run(self, context: CommandContext) -> Reply:
        """Do it and return the answer."""
        ...


def refusal(context: CommandContext, admins: AdminList) -> Reply | None:
    """Return what a command for admins answers where it does nothing; None where it is theirs."""
    if not admins.is_admin(context.author):
        return Reply(UNKNOWN_COMMAND)
    return Reply(IN_PRIVATE) if context.chat.is_group else None


async def asker_refusal(
    context: CommandContext, asker: str, groups: Messenger, admins: AdminList
) -> Reply | None:
    """Return what somebody is told who may not decide about another's question; None who may."""
    if asker == context.author.aci:
        return None
    refused = await group_refusal(context, groups, admins)
    return Reply(ONLY_ASKER) if refused == Reply(ONLY_ADMINS) else refused


async def group_refusal(
    context: CommandContext, groups: Messenger, admins: AdminList
) -> Reply | None:
    """Return what somebody is told who may not decide for a group; None where they may."""
    if not context.chat.is_group or admins.is_admin(context.author):
        return None
    try:
        group = await groups.group(context.chat)
    except SignalError:
        return Reply(CANNOT_TELL)
    if group is None or not group.admins & {context.author.aci, context.author.number}:
        return Reply(ONLY_ADMINS)
    return None


def number_in(word: str) -> int | None:
    """Return the number of something in a list that a word is; None where it is none."""
    is_number = word.isascii() and word.isdigit() and len(word) <= MAX_DIGITS
    return int(word) if is_number else None
