"""The walls around a sandbox, raised from the inside before it reads anything from outside."""

import os
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final

from tools.sandbox import landlock, namespaces, seccomp
from tools.sandbox.limits import Limits, limit_resources
from tools.sandbox.syscalls import prctl

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38


class Wall(StrEnum):
    """A wall of the kernel's, by the name that operators know it by."""

    SECCOMP = "seccomp"
    LANDLOCK = "Landlock"
    NAMESPACES = "namespaces"


ESSENTIAL: Final = frozenset({Wall.SECCOMP})
"""Without these, nothing runs if walls are required. For a sandbox without a folder, the others
only repeat seccomp's rules; containers and older kernels often lack them."""

AROUND_A_FOLDER: Final = frozenset({Wall.LANDLOCK, Wall.NAMESPACES})
"""A process that may open files needs one of these to hold it in its folder."""


def lacking_here() -> frozenset[Wall]:
    """Return the walls that the kernel says it lacks; namespaces show only when entered."""
    stands = {Wall.SECCOMP: seccomp.is_available(), Wall.LANDLOCK: landlock.version() > 0}
    return frozenset(wall for wall, there in stands.items() if not there)


def raise_walls(limits: Limits) -> frozenset[Wall]:
    """Confine this process for good, and return the walls that are missing.

    It keeps standard input and output, memory and clocks. On Linux it also ends with its parent
    and leaves no core dump. Elsewhere there are only limits.
    """
    if sys.platform != "linux":
        limit_resources(limits)
        return frozenset(Wall)
    missing: set[Wall] = set()

    def try_to(wall: Wall, install: Callable[[], None]) -> None:
        try:
            install()
        except OSError:
            missing.add(wall)

    folder, read_only = limits.folder, limits.read_only
    has_folder = folder is not None
    if folder is not None:
        os.chdir(folder)
    try_to(Wall.NAMESPACES, partial(namespaces.unshare, folder, read_only=read_only))
    namespaces.drop_capabilities()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    try_to(Wall.LANDLOCK, partial(landlock.install, folder=has_folder, read_only=read_only))
    confine = partial(_confine, limits)
    if Wall.NAMESPACES not in missing:
        # After Landlock: the kernel lets both end together only within one Landlock domain.
        try_to(Wall.NAMESPACES, partial(namespaces.divide, confine))
    confine()
    # Last: it allows none of the above.
    try_to(Wall.SECCOMP, partial(seccomp.install, folder=has_folder))
    return frozenset(missing)


def _confine(limits: Limits) -> None:
    """Bound a process and tie it to its parent."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_DUMPABLE, 0)  # a limit of 0 does not stop core dumps that go to a program
    limit_resources(limits)
