"""What the two ends of a sandbox's pipes agree on.

A request is a line of JSON: a list of a ticket and a text. A reply is a line of JSON and a text
behind it, as UTF-8: an object with `ticket`, `kind`, `size`, which is that of the text in bytes,
and `where`, the places in the code that a bug came through. The ticket is that of the request;
nobody can guess the next one, so no reply can be written ahead of its request. The first reply says
that the walls stand and comes without a request; its `where` lists the walls that this machine
lacks. The program's only argument is `Limits.as_argument`.

The text is not part of the JSON: a few megabytes of brackets take seconds and gigabytes to parse.
"""

from enum import StrEnum
from typing import Final

TICKET_BYTES: Final = 8
MAX_PLACES: Final = 8
HEAD_BYTES: Final = 2_048
"""Of a reply's line of JSON."""
ENVELOPE_BYTES: Final = 2 * TICKET_BYTES + 8
"""Of a request, around its text: the ticket as hexadecimal digits, brackets and quotation marks."""


class ReplyKind(StrEnum):
    """What a sandbox has to say."""

    READY = "ready"
    RESULT = "result"
    ERROR = "error"
    BUG = "bug"
