"""What a store says between two lives of the daemon."""

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
    """A part of an answer, as the outbox has it; `question` is the message's timestamp."""

    question: int
    number: int
    chat: str
    text: str | None
    state: str
    signal_timestamp: int | None


@dataclass(frozen=True, slots=True)
class Stored:
    """The tables of a store. Messages go by their timestamps.

    Attributes:
        outcomes: of every accepted message, None while it waits for its answer.
        parts: of all answers, in the order in which they are to be sent.
        calling: messages whose turn has asked for tool calls.
        attempts: how often each turn that came to an end was begun.
        open_calls: calls without a result in turns that came to an end.
    """

    outcomes: dict[int, str | None]
    parts: tuple[Part, ...]
    calling: frozenset[int]
    attempts: dict[int, int]
    open_calls: int

    @property
    def answered(self) -> frozenset[int]:
        """Messages whose answer is stored."""
        return frozenset(one for one, outcome in self.outcomes.items() if outcome is not None)

    @property
    def marked(self) -> dict[int, Part]:
        """The parts that are sent, by the timestamps that Signal gave them."""
        sent = (part for part in self.parts if part.state == "sent")
        return {part.signal_timestamp: part for part in sent if part.signal_timestamp is not None}

    def first_waiting(self, chat: str) -> Part | None:
        """The part that a chat is to get next."""
        waiting = (part for part in self.parts if part.chat == chat and part.state == "waiting")
        return next(waiting, None)


EMPTY = Stored({}, (), frozenset(), {}, 0)


def read_store(path: Path) -> Stored:
    """Read a store that nobody has open."""
    with copied(path) as database:
        return _tables(database)


@contextmanager
def copied(path: Path) -> Iterator[apsw.Connection]:
    """Open a copy of a store that nobody has open: reading would tidy the store up."""
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
    calling = select(
        "SELECT DISTINCT timestamp FROM inbox JOIN turns ON inbox.id = turns.id"
        " JOIN messages ON turns.id = messages.turn_id WHERE role = 'tool'"
    )
    attempts = select(
        "SELECT timestamp, attempts FROM inbox JOIN turns ON inbox.id = turns.id"
        " WHERE turns.state != 'running'"
    )
    open_calls = select(
        "SELECT turn_id FROM messages JOIN turns ON turns.id = turn_id"
        " WHERE turns.state != 'running' AND role = 'tool' AND content IS NULL"
    )
    return Stored(
        outcomes=dict(select("SELECT timestamp, outcome FROM inbox")),
        parts=tuple(Part(*row) for row in parts),
        calling=frozenset(timestamp for (timestamp,) in calling),
        attempts=dict(attempts),
        open_calls=len(open_calls),
    )
