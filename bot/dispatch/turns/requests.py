"""What a message is: found out once, when it comes in or when its text has changed."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from bot.approvals.answers import Answer
from bot.commands.base import Command
from bot.commands.plan import PlanCommand
from conversation_store.models import AcceptedMessage, ReceivedKind

COMMAND: Final = re.compile(r"!([a-z][\w-]*)$", re.IGNORECASE)


class RequestKind(Enum):
    """What a message is to the bot."""

    DELETION = auto()
    EDIT = auto()
    URGENT_COMMAND = auto()
    ANSWER = auto()
    COMMAND = auto()
    CONVERSATION = auto()


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A command as it was written; `command` is None when there is none of that name."""

    command: Command | None
    argument: str

    @property
    def is_question(self) -> bool:
        """Whether what follows its word is for the model."""
        return isinstance(self.command, PlanCommand) and bool(self.argument)

    @property
    def urgent(self) -> bool:
        """Whether it may not wait behind the turn that it ends."""
        return self.command is not None and self.command.urgent


@dataclass(frozen=True, slots=True)
class Request:
    """A message and what it is.

    Attributes:
        accepted: the message.
        command: the command that its text calls.
        answer: what it says to an open question.
    """

    accepted: AcceptedMessage
    command: CommandCall | None = None
    answer: Answer | None = None

    @property
    def urgent(self) -> bool:
        """Whether it may not wait behind the turn that it concerns."""
        return self.answer is not None or (self.command is not None and self.command.urgent)

    @property
    def kind(self) -> RequestKind:
        """What it is. An edit is one whatever its new text says: that counts when it is merged."""
        match self.accepted.message.kind, self.answer, self.command:
            case ReceivedKind.DELETION, _, _:
                return RequestKind.DELETION
            case ReceivedKind.EDIT, _, _:
                return RequestKind.EDIT
            case _, Answer(), _:
                return RequestKind.ANSWER
            case _, _, CommandCall(urgent=True):
                return RequestKind.URGENT_COMMAND
            case _, _, CommandCall():
                return RequestKind.COMMAND
            case _:
                return RequestKind.CONVERSATION


def parse_command(text: str, commands: dict[str, Command]) -> CommandCall | None:
    """Return the command that a text calls; None where it is for the model."""
    first, argument = (*text.split(maxsplit=1), "", "")[:2]
    found = COMMAND.match(first)
    return CommandCall(commands.get(found[1].lower()), argument.strip()) if found else None
