"""What the kernel takes away from a sandbox before it reads anything from outside.

Sources: setrlimit(2), PR_SET_PDEATHSIG in prctl(2).
"""

import ctypes
import json
import math
import os
import resource
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Final, Self

MEMORY_BYTES: Final = 256 * 2**20
CALL_SECONDS: Final = 2.0
LINE_LIMIT_BYTES: Final = 65_536
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox's process may take; the defaults are for short texts.

    Attributes:
        memory_bytes: of address space, with what its libraries take when they are loaded.
        call_seconds: for one call, by the clock; a little more by the processor.
        line_bytes: of a request and of a reply, written as JSON.
        idle_seconds: without a request, then the process ends; None keeps it.
    """

    memory_bytes: int = MEMORY_BYTES
    call_seconds: float = CALL_SECONDS
    line_bytes: int = LINE_LIMIT_BYTES
    idle_seconds: float | None = None

    def as_argument(self) -> str:
        """Return what `from_argument` reads on the other side of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Self:
        """Return what `as_argument` has written."""
        return cls(**json.loads(text))


def confine(memory_bytes: int) -> None:
    """Give up memory beyond a bound, files, sockets, children and core dumps, for good.

    On Linux the process also ends with the process that started it, however that ends. Elsewhere
    it ends when it finds its pipe closed or has used up the time of its call.
    """
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_NOFILE, 3)  # its three pipes are open; nothing else can be
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_CORE, 0)


def grant_cpu(call_seconds: float) -> None:
    """Allow the time of one call and a second more, on top of what earlier calls have used."""
    used = sum(os.times()[:2])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (_within(int(used) + math.ceil(call_seconds) + 1, hard), hard)
    )


def _limit(kind: int, wanted: int) -> None:
    bound = _within(wanted, resource.getrlimit(kind)[1])
    resource.setrlimit(kind, (bound, bound))


def _within(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
