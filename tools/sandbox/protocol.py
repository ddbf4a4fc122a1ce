"""What the two ends of a sandbox's pipes agree on: JSON, one line each way.

A request is a JSON string. A reply is an object with `kind`, `text` and, for a bug, `where`. The
first reply says that the limits are in force and comes without a request. The program's only
argument is `Limits.as_argument`.
"""

from enum import StrEnum


class ReplyKind(StrEnum):
    """What a sandbox has to say."""

    READY = "ready"
    RESULT = "result"
    ERROR = "error"
    BUG = "bug"
