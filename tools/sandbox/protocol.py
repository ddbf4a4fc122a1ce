"""What the two ends of a sandbox's pipes agree on: JSON, one line each way.

A request is a JSON string. A reply is an object with `kind`, `text` and, for a bug, `where`. The
first reply says that the limits are in force and comes without a request.
"""

from enum import StrEnum
from typing import Final

LINE_LIMIT_BYTES: Final = 65_536


class ReplyKind(StrEnum):
    """What a sandbox has to say."""

    READY = "ready"
    RESULT = "result"
    ERROR = "error"
    BUG = "bug"
