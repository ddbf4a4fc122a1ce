"""Who is asked before a call with side effects."""

from enum import StrEnum
from typing import Protocol

from tools.base import ToolRequest


class Decision(StrEnum):
    """What came of asking."""

    YES = "yes"
    NO = "no"
    SILENCE = "silence"
    NOT_ASKED = "not_asked"
    """The question could not be put to anybody."""
    INTERRUPTED = "interrupted"
    """It was allowed and begun before a restart; what it came to is unknown."""


class Approval(Protocol):
    """Asks a person. Implemented by `bot.approvals.desk.TurnApproval`."""

    async def ask(self, request: ToolRequest, question: str) -> Decision:
        """Ask whether a call may run, and wait for the answer within a bound of its own.

        Args:
            request: the call, with what it needs of people; asking about it again goes on with the
                same question. Where nobody needs to be asked, the answer is yes at once.
            question: what is going to happen, readable, complete and of bounded length.
        """
        ...
