"""What the operator demands of the walls around sandboxes, and what this machine has of them."""

from collections.abc import Iterable
from typing import Final

import structlog

from sandbox.errors import WorkUnavailable
from sandbox.walls import AROUND_A_FOLDER, ESSENTIAL, Wall, lacking_here

log = structlog.get_logger()

_NO_FOLDER: Final = "This machine cannot wall off a folder:"


class SandboxPolicy:
    """Knows which walls are missing here; one for all sandboxes of a program.

    Args:
        required: whether nothing may run where an essential wall is missing.
    """

    def __init__(self, *, required: bool = False) -> None:
        self._required = required
        self._missing: frozenset[Wall] = frozenset()
        self.note(lacking_here())

    @property
    def missing(self) -> tuple[Wall, ...]:
        """The walls that are known to be missing, in alphabetical order."""
        return tuple(sorted(self._missing))

    def note(self, missing: Iterable[Wall]) -> None:
        """Remember and log what turns out to be missing; nothing is logged twice."""
        if new := set(missing) - self._missing:
            self._missing |= new
            say = log.warning if ESSENTIAL & new else log.info
            say("sandbox.wall_missing", kind=", ".join(sorted(new)))

    def require_walls(self) -> None:
        """Return where sandboxes may run.

        Raises:
            WorkUnavailable: an essential wall is missing, and walls are required.
        """
        if self._required and (missing := self._missing & ESSENTIAL):
            raise WorkUnavailable(
                f"This needs a sandbox, and this machine cannot wall one off: it lacks"
                f" {', '.join(sorted(missing))} (SANDBOX=required)."
            )

    def require_walls_around_a_folder(self) -> None:
        """Return where a sandbox may work in a folder: files are never opened without walls.

        Raises:
            WorkUnavailable: nothing would hold it there.
        """
        if missing := self._missing & ESSENTIAL:
            raise WorkUnavailable(f"{_NO_FOLDER} it lacks {', '.join(sorted(missing))}.")
        if self._missing >= AROUND_A_FOLDER:
            raise WorkUnavailable(
                f"{_NO_FOLDER} it allows neither Landlock (Linux 5.19 or later) nor user"
                " namespaces."
            )
