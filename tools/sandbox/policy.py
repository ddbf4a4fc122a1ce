"""The walls that the operator demands, and the walls that this machine lacks."""

from collections.abc import Iterable
from typing import Final

import structlog

from tools.sandbox.errors import WorkUnavailable
from tools.sandbox.walls import AROUND_A_FOLDER, ESSENTIAL, Wall, lacking_here

log = structlog.get_logger()

_NO_FOLDER: Final = "This machine cannot wall off a folder:"


class SandboxPolicy:
    """Knows which walls are missing here, and whether that stops sandboxes."""

    def __init__(self, *, required: bool = False) -> None:
        self._required = required
        self._missing: frozenset[Wall] = frozenset()
        self.note(lacking_here())

    @property
    def missing(self) -> tuple[Wall, ...]:
        """The walls that are known to be missing, in alphabetical order."""
        return tuple(sorted(self._missing))

    def note(self, missing: Iterable[Wall]) -> None:
        """Remember missing walls, and log each once."""
        if new := set(missing) - self._missing:
            self._missing |= new
            say = log.warning if ESSENTIAL & new else log.info
            say("sandbox.wall_missing", kind=", ".join(sorted(new)))

    def require_walls(self, *, around_folder: bool = False) -> None:
        """Raise WorkUnavailable if a wall is missing that the operator, or a folder, demands."""
        lacking = ", ".join(sorted(self._missing & ESSENTIAL))
        if lacking and self._required:
            raise WorkUnavailable(
                "This needs a sandbox, and this machine cannot wall one off: it lacks"
                f" {lacking} (SANDBOX=required)."
            )
        if lacking and around_folder:
            raise WorkUnavailable(f"{_NO_FOLDER} it lacks {lacking}.")
        if around_folder and self._missing >= AROUND_A_FOLDER:
            raise WorkUnavailable(
                f"{_NO_FOLDER} it allows neither Landlock (Linux 5.19 or later) nor user"
                " namespaces."
            )
