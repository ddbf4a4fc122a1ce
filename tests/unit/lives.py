"""Random use of stores, and a search for rows and bytes that should be gone."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversation_store.store import ConversationStore, open_store
from tests.unit.stores import rows

HOUR_MS = 3_600_000
RETENTION_MS = 30 * 24 * HOUR_MS


class Life(ABC):
    """Chats whose store is written at random; `store` is the open one."""

    store: ConversationStore

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = 1_800_000_000_000
        self.count = 0

    def seconds(self) -> float:
        return self.now / 1_000

    def number(self) -> int:
        self.count += 1
        return self.count

    @abstractmethod
    async def run(self) -> None:
        """Use the store for a while."""

    @abstractmethod
    def gone(self) -> Sequence[str]:
        """Return the words that may be nowhere any more."""


async def _live(life: Life, folder: Path) -> None:
    for _ in range(2):
        async with open_store(folder / "store.db", clock=life.seconds) as store:
            life.store = store
            await life.run()
            await store.upkeep.expire()
            assert trace_in_tables(folder, life.gone()) == []
        assert trace_in_files(folder, life.gone()) == []


def live(life: Life) -> None:
    """Use a store at random, reopen it and go on, and search for text that should be gone."""
    with TemporaryDirectory() as folder:
        asyncio.run(_live(life, Path(folder)))


def lives(count: int) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Run a test with so many seeds."""
    bounds = settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    return lambda test: bounds(given(st.integers(0, 1_000_000))(test))


def trace_in_tables(folder: Path, words: Sequence[str]) -> list[str]:
    """Return the words that any table still holds."""
    tables = rows(folder, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    found = [rows(folder, f"SELECT * FROM {name}") for (name,) in tables]
    kept = b"".join(
        value.encode() if isinstance(value, str) else value
        for table in found
        for row in table
        for value in row
        if isinstance(value, str | bytes)
    )
    return [word for word in words if word.encode() in kept]


def trace_in_files(folder: Path, words: Sequence[str]) -> list[str]:
    """Return the words that the raw files still hold."""
    kept = b"".join(path.read_bytes() for path in sorted(folder.glob("store.db*")))
    return [word for word in words if word.encode() in kept]
