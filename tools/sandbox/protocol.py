"""What the two ends of a sandbox's pipes agree on: JSON, one line each way.

A request is a list of a ticket and a text. A reply is an object with `ticket`, `kind`, `text` and
`where`, the places in the code that a bug came through. The ticket is that of the request; nobody
can guess the next one, so no reply can be written ahead of its request. The first reply says that
the walls stand and comes without a request; its `where` lists the walls that this machine lacks.
The program's only argument is `Limits.as_argument`.
"""

from enum import StrEnum
from typing import Final

TICKET_BYTES: Final = 8
MAX_PLACES: Final = 8
ENVELOPE_BYTES: Final = 2 * TICKET_BYTES + 8
"""Of a request, around its text: the ticket as hexadecimal digits, brackets and quotation marks."""


class ReplyKind(StrEnum):
    """What a sandbox has to say."""

    READY = "ready"
    RESULT = "result"
    ERROR = "error"
    BUG = "bug"
