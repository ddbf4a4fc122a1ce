"""What may go wrong with work that is done in a sandbox.

WorkError              an expected failure: its text is a sentence that a person or a model can use
├── WorkUnavailable    the machine lacks a wall that the operator demands
└── WorkTimeout        the work took too long and was stopped

SandboxBug             the code inside failed in a way that it should not; details are in the log
"""


class WorkError(Exception):
    """An expected failure, said in a sentence."""


class WorkUnavailable(WorkError):
    """No sandbox may run on this machine; the text says which wall is missing."""


class WorkTimeout(WorkError):
    """The work was stopped because it took too long."""


class SandboxBug(Exception):
    """The code inside the sandbox failed in a way that it should not."""
