"""The contents of a store between two lives of the daemon."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw


@dataclass(frozen=True, slots=True)
class Part:
    """Part of an answer in the outbox; `question` is the timestamp of the person's message."""

    question: int
    number: int
    chat: str
    text: str | None
    state: str
    signal_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Tables of a store. Timestamps identify messages.

    Attributes:
        outcomes: of every accepted message, None while it waits for its answer.
        parts: of all answers, in the order in which they are to be sent.
    """

    outcomes: dict[int, str | None]
    parts: tuple[Part, ...]

    @property
    def answered(self) -> frozenset[int]:
        """Messages whose answer is stored."""
        return frozenset(one for one, outcome in self.outcomes.items() if outcome is not None)

    @property
    def marked(self) -> dict[int, Part]:
        """The parts that are sent, by the timestamps that Signal gave them."""
        sent = (part for part in self.parts if part.state == "sent")
        return {part.signal_timestamp: part for part in sent if part.signal_timestamp is not None}


EMPTY = Stored({}, ())


def read_store(path: Path) -> Stored:
    """Read a closed store."""
    with copied(path) as database:
        return _tables(database)


@contextmanager
def copied(path: Path) -> Iterator[apsw.Connection]:
    """Open a copy of a closed store, because reading would tidy the store up."""
    with tempfile.TemporaryDirectory(prefix="stb-") as folder:
        for source in (path, path.with_name(path.name + "-wal")):
            if source.exists():
                shutil.copy(source, folder)
        database = apsw.Connection(str(Path(folder) / path.name))
        try:
            yield database
        finally:
            database.close()


def _tables(database: apsw.Connection) -> Stored:
    def select(sql: str) -> list[tuple[Any, ...]]:
        return database.execute(sql).fetchall()

    if not select("SELECT 1 FROM sqlite_schema WHERE name = 'outbox'"):
        return EMPTY  # killed before its first commit
    parts = select(
        "SELECT inbox.timestamp, part, outbox.chat, text, outbox.state, signal_timestamp"
        " FROM outbox JOIN inbox ON inbox.id = inbox_id ORDER BY inbox.id, part"
    )
    return Stored(
        outcomes=dict(select("SELECT timestamp, outcome FROM inbox")),
        parts=tuple(Part(*row) for row in parts),
    )
