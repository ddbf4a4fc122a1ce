"""What a tool may raise on purpose.

ToolError             an expected failure: its text is a sentence that the model reads
└── InvalidArguments  the arguments do not fit; the text says what to send instead

Anything else that leaves a tool is a bug: logged, and told to the model without details.
"""


class ToolError(Exception):
    """An expected failure, said in a sentence that the model can act on."""


class InvalidArguments(ToolError):
    """The arguments do not fit the tool's schema."""
