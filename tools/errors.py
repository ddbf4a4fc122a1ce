"""Errors that a tool may raise on purpose; each is the outcome of a call.

Any other exception is a bug: logged, and told to the model without details.
"""

from typing import ClassVar

from tools.base import Outcome


class ToolError(Exception):
    """An expected failure, in a sentence that helps the model to go on."""

    outcome: ClassVar = Outcome.FAILED


class UnknownTool(ToolError):
    """The tool is unknown; the text names the known ones."""

    outcome = Outcome.UNKNOWN


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema; the text says what to send instead."""

    outcome = Outcome.INVALID


class RateLimited(ToolError):
    """There were too many calls; the text says when the next one may come."""

    outcome = Outcome.RATE_LIMITED


class Declined(ToolError):
    """A person did not want the call."""

    outcome = Outcome.DECLINED


class Unanswered(ToolError):
    """The question whether the call may run got no answer."""

    outcome = Outcome.UNANSWERED


class Interrupted(ToolError):
    """The call began before a restart; whether it took effect is unknown."""

    outcome = Outcome.INTERRUPTED


class AwaitsPerson(ToolError):
    """A person answers the call, which stays open; run again later, it returns the answer."""

    outcome = Outcome.AWAITS_PERSON


class ToolUnavailable(ToolError):
    """The tool cannot work until the operator mends something; it is withdrawn."""


class ToolTimeout(ToolError):
    """The tool was stopped because it took too long."""

    outcome = Outcome.TIMEOUT
