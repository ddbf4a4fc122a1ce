"""What a chat command is."""

from dataclasses import dataclass
from typing import Final, Protocol

from bot.messaging.events import Person
from conversation_store.models import Attachment, ChatId

UNKNOWN_COMMAND: Final = "I don't know that command. Send !help to see what I can do."
"""Also what commands for admins answer to everybody else."""
IN_PRIVATE: Final = "I do that only in our private chat."
"""What they answer to an admin in a group."""


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
        text: what is said.
        attachments: files that go with its first part.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()


class AdminList(Protocol):
    """Who administers the bot. Implemented by `bot.dispatch.incoming.access.Access`."""

    def is_admin(self, person: Person) -> bool:
        """Whether this person administers the bot."""
        ...


class ModelSummary(Protocol):
    """What is known of the model. Implemented by `bot.attestation.near_ai.service`."""

    def summary(self) -> str:
        """Return in a sentence or two whether it is proven which model answers, and where."""
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
