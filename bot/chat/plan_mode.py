"""Plan mode: a turn that `!plan` begins only reads until a person has accepted its plan.

The question says so itself, at its end. So a restart knows it, and so does a turn that asks the
same again. A person who writes these words binds nobody but the own turn.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bot.approvals.model_question import ACCEPTED
from conversation_store.models import Message, ReceivedKind, ReceivedMessage
from tools.people import PROPOSE_PLAN

PLANNING: Final = (
    "[Plan mode: find out what is needed with tools that only read, then propose a plan with"
    " propose_plan. Change nothing before the person has accepted it.]"
)

_COMMAND: Final = re.compile(r"\s*!plan\s+(?=\S)", re.IGNORECASE)


def without_command(messages: Sequence[ReceivedMessage]) -> tuple[list[ReceivedMessage], bool]:
    """Return messages without `!plan` before their question, and whether it was there.

    What the bot asks itself is no command, whatever it says.
    """
    first, *others = messages
    if first.kind is ReceivedKind.SCHEDULED:
        return [*messages], False
    question = _COMMAND.sub("", first.text, count=1)
    return [replace(first, text=question), *others], question != first.text


def is_to_be_planned(messages: Sequence[Message]) -> bool:
    """Whether a turn with these messages began in plan mode."""
    return PLANNING in (messages[0].content or "")


def accepts_plan(call_names: dict[str, str], message: Message) -> bool:
    """Whether a message is a result that says that a plan was accepted.

    Args:
        call_names: names of the tools that were called, by the ids of the calls.
        message: of the turn.
    """
    is_of_plan = call_names.get(message.tool_call_id or "") == PROPOSE_PLAN
    return is_of_plan and message.content == ACCEPTED


def is_accepted(messages: Sequence[Message]) -> bool:
    """Whether a person has accepted a plan in a turn."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return any(accepts_plan(names, message) for message in messages)
