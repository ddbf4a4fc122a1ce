"""What all sections of an open store work with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conversation_store.database import Database
from conversation_store.models import AcceptedMessage


@dataclass(slots=True)
class StoreContext:
    """The database, and what is the same for everything in it.

    Attributes:
        database: runs the operations.
        path: of its file.
        clock: seconds since 1970.
        retention_days: messages older than this are deleted; 0 keeps nothing of a turn that ended.
    """

    database: Database
    path: Path
    clock: Callable[[], float]
    retention_days: int

    def now_ms(self) -> int:
        """Return the time in ms since 1970."""
        return int(self.clock() * 1_000)

    def has_disappeared(self, accepted: AcceptedMessage) -> bool:
        """Whether a message's timer has run out."""
        expires_at = accepted.message.expires_at
        return expires_at is not None and expires_at <= self.now_ms()

    def leave_no_words(self, *, have_disappeared: bool) -> None:
        """Have the log forget what was just dropped from rows, where nobody is to find it again."""
        if have_disappeared or self.retention_days == 0:
            self.database.scrub_soon()
