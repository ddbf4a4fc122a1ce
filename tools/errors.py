"""What a tool may raise on purpose.

ToolError             an expected failure: its text is a sentence that the model reads
├── UnknownTool       there is no tool of that name; the text names those there are
├── InvalidArguments  the arguments do not fit; the text says what to send instead
├── RateLimited       too many calls; the text says when the next one may come
├── Declined          a person said no
├── Unanswered        no person said yes: nobody answered in time, or nobody could be asked
├── Interrupted       it was begun before a restart; whether it took effect is unknown
├── AwaitsPerson      a person has been asked for the result; the call stays open until then
├── ToolUnavailable   the tool cannot work until the operator mends something; the text says what
└── ToolTimeout       the tool was stopped because it took too long

Anything else that leaves a tool is a bug: logged, and told to the model without details.
"""


class ToolError(Exception):
    """An expected failure, said in a sentence that the model can act on."""


class UnknownTool(ToolError):
    """There is no tool of that name."""


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""


class RateLimited(ToolError):
    """There were too many calls."""


class Declined(ToolError):
    """A person did not want the call."""


class Unanswered(ToolError):
    """No person allowed the call."""


class Interrupted(ToolError):
    """The call was begun before a restart, and is not begun again."""


class AwaitsPerson(ToolError):
    """A person answers the call, which stays open; run again later, it returns the answer."""


class ToolUnavailable(ToolError):
    """The tool cannot work as it is set up; it is withdrawn, and it alone."""


class ToolTimeout(ToolError):
    """The tool was stopped because it took too long."""
