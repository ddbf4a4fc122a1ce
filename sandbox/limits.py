"""How much a sandbox may take of what every process has. Source: setrlimit(2)."""

import json
import resource
from dataclasses import asdict, dataclass
from typing import Final, Self

MEMORY_BYTES: Final = 256 * 2**20
CALL_SECONDS: Final = 2.0
MAX_LINE_BYTES: Final = 65_536
LIFE_CPU_SECONDS: Final = 60
"""Of a process, with all its calls: what one that was taken over can burn between two calls."""


DESCRIPTORS: Final = 64
"""Of a process that works in a folder; each step down into it takes one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox's process may take; the defaults are for short texts.

    Attributes:
        memory_bytes: of address space, with what its libraries take when they are loaded.
        call_seconds: for one call, by the clock.
        line_bytes: of a request, written as JSON.
        reply_bytes: of a reply's text as UTF-8.
        idle_seconds: without a request, then the process ends, or is ended; None keeps it.
        folder: where it may read and write files, and nothing else; None: it has no files at all.
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

    def as_argument(self) -> str:
        """Return what `from_argument` reads on the other side of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Self:
        """Return what `as_argument` has written."""
        return cls(**json.loads(text))


def limit_resources(limits: Limits) -> None:
    """Give up memory, time and files beyond a bound, children and core dumps, for good.

    What has used up its time is killed by the kernel; the clock of a call is the bot's.
    """
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    _limit(resource.RLIMIT_CPU, LIFE_CPU_SECONDS)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_CORE, 0)


def limit_descriptors(limits: Limits) -> None:
    """Give up new descriptors, also under the number of one that is closed; a folder needs some."""
    _limit(resource.RLIMIT_NOFILE, 0 if limits.folder is None else DESCRIPTORS)


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(kind, (bound, bound))
