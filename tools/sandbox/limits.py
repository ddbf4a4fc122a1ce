"""Limits of a sandbox's process, and the protocol of its pipes.

A request is a line of JSON: a list of a ticket and a text. A reply is a line of JSON and a text
after it, as UTF-8. The line is an object with `ticket`, `kind`, `size` (of the text in bytes) and
`where` (the places in the code that a bug came through). The ticket is that of the request. It
cannot be guessed, so no reply can be written before its request. The first reply comes without a
request and says that the walls stand; its `where` lists the walls that this machine lacks.

The text is not part of the JSON: a few megabytes of brackets take seconds and gigabytes to parse.

Source: setrlimit(2).
"""

import resource
from dataclasses import dataclass
from typing import Final, Literal

MEMORY_BYTES: Final = 256 * 2**20
CALL_SECONDS: Final = 2.0
MAX_LINE_BYTES: Final = 65_536
LIFE_CPU_SECONDS: Final = 60
"""For all calls of a process together: an attacker inside can burn no more between two calls."""
DESCRIPTORS: Final = 64
"""For a process that works in a folder; each step down into it takes one."""
TICKET_BYTES: Final = 8
MAX_PLACES: Final = 8
HEAD_BYTES: Final = 2_048
"""Longest line of JSON of a reply."""
ENVELOPE_BYTES: Final = 2 * TICKET_BYTES + 8
"""Around a request's text: the ticket as hexadecimal digits, brackets and quotation marks."""


ReplyKind = Literal["ready", "result", "error", "bug"]
"""Kinds of replies."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a sandbox's process; the defaults are for short texts.

    Attributes:
        memory_bytes: of address space, loaded libraries included.
        call_seconds: for one call, by the clock.
        line_bytes: of a request, written as JSON.
        reply_bytes: of a reply's text as UTF-8.
        idle_seconds: without a request, after which the process ends; None: never.
        folder: the only files that it may read and write; None: it may open no files.
        read_only: nothing in the folder may be changed.
        file_bytes: of one file that it writes.
    """

    memory_bytes: int = MEMORY_BYTES
    call_seconds: float = CALL_SECONDS
    line_bytes: int = MAX_LINE_BYTES
    reply_bytes: int = MAX_LINE_BYTES
    idle_seconds: float | None = None
    folder: str | None = None
    read_only: bool = False
    file_bytes: int = 0


def limit_resources(limits: Limits) -> None:
    """Bound memory, time and files, and forbid children and core dumps, for good.

    The kernel kills a process that has used up its time; the clock of a call is the bot's. A
    process without a folder gets no new descriptor, not even the number of a closed one.
    """
    limit(resource.RLIMIT_AS, limits.memory_bytes)
    limit(resource.RLIMIT_CPU, LIFE_CPU_SECONDS)
    limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    limit(resource.RLIMIT_NPROC, 0)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, 0 if limits.folder is None else DESCRIPTORS)


def limit(kind: int, wanted: int) -> None:
    """Set a limit of this process, as far as the present one allows."""
    hard = resource.getrlimit(kind)[1]
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(kind, (bound, bound))
