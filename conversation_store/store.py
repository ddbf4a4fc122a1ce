"""The store of everything that survives a crash.

A message is accepted (a waiting row of `inbox`), its turn begins, calls of the model are stored
before they run, and then their results. The answer is stored in one transaction with the end of the
turn and of the inbox row; each part is marked with Signal's timestamp after it was sent. A start
continues with waiting rows.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from conversation_store import backup
from conversation_store.changes import ChangeStore
from conversation_store.connections import Session
from conversation_store.database import (
    Aggregate,
    Committed,
    StoreContext,
    locked,
    open_database,
    open_shared,
    reads,
    writes,
)
from conversation_store.files import FileStore
from conversation_store.heard import CatchUpStore
from conversation_store.memory import InstructionStore, MemoryStore
from conversation_store.messages import MessageStore
from conversation_store.outbox import DoubtStore, OutboxStore
from conversation_store.outgoing import OutgoingStore
from conversation_store.pairings import Pairings
from conversation_store.questions import GrantStore, QuestionStore
from conversation_store.reactions import ReactionStore
from conversation_store.reminders import ReminderStore
from conversation_store.schema import MIGRATIONS, Migrations, migrate, require_current
from conversation_store.search import SearchStore
from conversation_store.summaries import SummaryStore
from conversation_store.turns import TurnStore
from conversation_store.upkeep import StoreUpkeep
from conversation_store.usage import ExchangeStore, UsageStore


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    key: str | None = None,
    retention_days: int = 30,
    committed: Committed = lambda _writes, _seconds: None,
    clock: Callable[[], float] = time.time,
    migrations: Migrations = MIGRATIONS,
) -> AsyncIterator["ConversationStore"]:
    """Open or create the store, bring its schema up to date and keep its writer running.

    Args:
        path: the database file; a missing folder is made.
        key: encrypts it at rest; None leaves it plain.
        retention_days: `purge` deletes older messages; 0 keeps nothing of a turn once it has ended.
        committed: called after every commit with the number of writes and the seconds.
        migrations: the steps of the schema; tests add invented ones.

    Raises:
        StoreError: see `conversation_store.connections`.
    """
    with locked(path) as real:
        backup.make_ready(real, key, migrations)  # blocks: nothing may happen before it has ended
        prepare = partial(migrate, migrations=migrations)
        async with open_database(real, key, prepare=prepare, committed=committed) as database:
            yield ConversationStore(StoreContext(database, real, clock, retention_days))


class ConversationStore(Aggregate):
    """Everything that the bot remembers. Made by `open_store`."""

    def __init__(self, context: StoreContext) -> None:
        super().__init__(context)
        self.refusal_other_than = self._database.refusal_other_than
        self.messages = MessageStore(context)
        self.changes = ChangeStore(context)
        self.turns = TurnStore(context)
        self.catch_up = CatchUpStore(context)
        self.questions = QuestionStore(context)
        self.grants = GrantStore(context)
        self.outbox = OutboxStore(context)
        self.reactions = ReactionStore(context)
        self.doubts = DoubtStore(context)
        self.exchanges = ExchangeStore(context)
        self.usage = UsageStore(context)
        self.memory = MemoryStore(context)
        self.search = SearchStore(context)
        self.summaries = SummaryStore(context)
        self.outgoing = OutgoingStore(context)
        self.instructions = InstructionStore(context)
        self.reminders = ReminderStore(context)
        self.files = FileStore(context)
        self.pairings = Pairings(context)
        self.upkeep = StoreUpkeep(context)

    @property
    def retention_days(self) -> int:
        """Days after which messages are deleted; may be changed at any time."""
        return self._context.retention_days

    @retention_days.setter
    def retention_days(self, days: int) -> None:
        self._context.retention_days = days

    @property
    def refusal(self) -> str | None:
        """Why the disk refuses writes now, in words, or None. Writes wait until it accepts them."""
        return self._database.refusal

    @reads
    def get_metadata(self, db: Session, name: str) -> str | None:
        """Return a note of the bot about itself."""
        found: str | None = db.value("SELECT value FROM metadata WHERE name = ?", name)
        return found

    @reads
    def metadata_below(self, db: Session, prefix: str) -> dict[str, str]:
        """Return the bot's notes about itself whose names have a prefix."""
        sql = "SELECT name, value FROM metadata WHERE substr(name, 1, ?) = ?"
        return dict(db.run(sql, len(prefix), prefix))

    @writes
    def set_metadata(self, db: Session, name: str, value: str) -> None:
        """Store or replace a note of the bot about itself."""
        db.run("INSERT OR REPLACE INTO metadata (name, value) VALUES (?, ?)", name, value)


def note_in(path: Path, key: str | None, name: str) -> str | None:
    """Return a note of the bot about itself, also next to a running bot. Blocks; StoreError."""
    with open_shared(path, key, check=require_current) as connection:
        found: str | None = Session(connection).value(
            "SELECT value FROM metadata WHERE name = ?", name
        )
    return found
