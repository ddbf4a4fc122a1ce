"""What the kernel takes away from a sandbox before it reads anything from outside.

Sources: setrlimit(2), PR_SET_PDEATHSIG in prctl(2).
"""

import ctypes
import os
import resource
import signal
import sys
from typing import Final

MEMORY_BYTES: Final = 256 * 2**20
CPU_SECONDS: Final = 3
_PR_SET_PDEATHSIG: Final = 1


def confine() -> None:
    """Give up memory beyond a bound, files, sockets, children and core dumps, for good.

    On Linux the process also ends with the process that started it, however that ends. Elsewhere
    it ends when it finds its pipe closed or has used up the time of its call.
    """
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_NOFILE, 3)  # its three pipes are open; nothing else can be
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_CORE, 0)


def grant_cpu() -> None:
    """Allow the time of one call, on top of what earlier calls have used."""
    used = sum(os.times()[:2])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (_within(int(used) + CPU_SECONDS, hard), hard))


def _limit(kind: int, wanted: int) -> None:
    bound = _within(wanted, resource.getrlimit(kind)[1])
    resource.setrlimit(kind, (bound, bound))


def _within(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
