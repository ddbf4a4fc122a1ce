"""What a sandbox is confined by, raised from the inside before anything from outside is read."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final

from sandbox import landlock, namespaces, seccomp
from sandbox.limits import Limits, limit_descriptors, limit_resources
from sandbox.syscalls import checked, libc

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38


class Wall(StrEnum):
    """A wall of the kernel's, by the name that operators know it by."""

    SECCOMP = "seccomp"
    LANDLOCK = "Landlock"
    NAMESPACES = "namespaces"


ESSENTIAL: Final = frozenset({Wall.SECCOMP})
"""Without these nothing runs where walls are required. The others stand behind seccomp and hold
nothing that it does not hold; containers and older kernels often lack them."""

AROUND_A_FOLDER: Final = frozenset({Wall.LANDLOCK, Wall.NAMESPACES})
"""One of these keeps whoever may open files inside a folder."""


def lacking_here() -> frozenset[Wall]:
    """Return the walls that the kernel says it lacks.

    Whether namespaces are allowed shows only when they are entered.
    """
    stands = {Wall.SECCOMP: seccomp.is_available(), Wall.LANDLOCK: landlock.version() > 0}
    return frozenset(wall for wall, there in stands.items() if not there)


def raise_walls(limits: Limits) -> frozenset[Wall]:
    """Confine this process for good: it keeps standard input and output, memory and clocks.

    On Linux it also ends with the process that started it, however that ends, and leaves no core
    dump. Elsewhere there is no wall, only limits.

    Returns:
        The walls that are missing.
    """
    if sys.platform != "linux":
        limit_resources(limits)
        limit_descriptors(limits)
        return frozenset(Wall)
    has_folder = limits.folder is not None
    if limits.folder is not None:
        os.chdir(limits.folder)
    missing = _missing(
        Wall.NAMESPACES, partial(namespaces.unshare, limits.folder, read_only=limits.read_only)
    )
    namespaces.drop_capabilities()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    missing |= _missing(
        Wall.LANDLOCK, partial(landlock.install, folder=has_folder, read_only=limits.read_only)
    )
    confine = partial(_confine, limits)
    if Wall.NAMESPACES not in missing:
        # After Landlock: only within one domain of it may the kernel end both together.
        missing |= _missing(Wall.NAMESPACES, partial(namespaces.divide, confine))
    confine()
    # Last: it allows none of the above.
    return missing | _missing(Wall.SECCOMP, partial(seccomp.install, folder=has_folder))


def _confine(limits: Limits) -> None:
    """Bound a process and tie it to its parent."""
    limit_resources(limits)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_DUMPABLE, 0)  # a limit of 0 does not stop core dumps that go to a program
    limit_descriptors(limits)


def _missing(wall: Wall, install: Callable[[], None]) -> frozenset[Wall]:
    """Raise a wall; return it where that cannot be done."""
    try:
        install()
    except OSError:
        return frozenset({wall})
    return frozenset()


def _prctl(option: int, value: int) -> None:
    checked(libc().prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3), "prctl")
