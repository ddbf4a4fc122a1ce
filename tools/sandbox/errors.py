"""Errors of work in a sandbox, also for the programs inside it, so this file loads nothing else."""


class WorkError(Exception):
    """An expected failure; its text is a sentence that a person or a model can use."""


class ToolUnavailable(WorkError):
    """Something is missing that the operator must provide; the bot withdraws the tool."""


class WorkLost(WorkError):
    """The process ended before it was done, as if it needed more memory than it may have."""


class WorkTimeout(WorkError):
    """The work was stopped because it took too long."""


class SandboxBug(Exception):
    """The code inside the sandbox has a bug; details are in the log."""
