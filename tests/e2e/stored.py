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
class Stored:
    """Tables of a store.

    Attributes:
        outcomes: of every accepted message by its timestamp, None while it waits for its answer.
        states: of the parts of answers.
    """

    outcomes: dict[int, str | None]
    states: frozenset[str]

    @property
    def answered(self) -> frozenset[int]:
        """Messages whose answer is stored."""
        return frozenset(one for one, outcome in self.outcomes.items() if outcome is not None)


def read_store(path: Path) -> Stored:
    """Read a closed store."""
    with copied(path) as database:
        messages: list[Any] = database.execute("SELECT timestamp, outcome FROM inbox").fetchall()
        sql = "SELECT DISTINCT state FROM outbox WHERE inbox_id IS NOT NULL"
        parts: list[Any] = database.execute(sql).fetchall()
    return Stored(dict(messages), frozenset(state for (state,) in parts))


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
