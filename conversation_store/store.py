"""The conversation store: what survives a crash, and in which order it gets to the disk.

A message's life: accepted (inbox, `waiting`) → turn begun → model's calls recorded (open) →
their results → answer stored together with the end of the turn and of the inbox row (one
transaction) → each part sent, then marked with Signal's timestamp. Whatever is `waiting` when
a process starts is where it goes on.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from conversation_store import (
    backup,
    metadata,
)
from conversation_store.database import (
    Committed,
    locked,
    open_database,
)
from conversation_store.migrations import migrate
from conversation_store.pairings import Pairings
from conversation_store.sections.approvals import ApprovalStore
from conversation_store.sections.catch_up import CatchUpStore
from conversation_store.sections.doubts import DoubtStore
from conversation_store.sections.exchanges import ExchangeStore
from conversation_store.sections.grants import GrantStore
from conversation_store.sections.helpers import HelperStore
from conversation_store.sections.instructions import InstructionStore
from conversation_store.sections.memory import MemoryStore
from conversation_store.sections.messages import MessageStore
from conversation_store.sections.outbox import OutboxStore
from conversation_store.sections.questions import QuestionStore
from conversation_store.sections.reminders import ReminderStore
from conversation_store.sections.section import StoreContext
from conversation_store.sections.turns import TurnStore
from conversation_store.sections.upkeep import StoreUpkeep
from conversation_store.sections.usage import UsageStore


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    key: str | None = None,
    retention_days: int = 30,
    committed: Committed = lambda _writes, _seconds: None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator["ConversationStore"]:
    """Open or create the store, bring its schema up to date and keep its writer running.

    What is of an earlier schema is kept beside it for a day; see `backup.upgrade`.

    Args:
        path: the database file; a missing folder is made.
        key: encrypts it at rest; None leaves it plain.
        retention_days: messages older than this are deleted by `purge`; 0 keeps nothing of a
            turn once it has ended.
        committed: told after every commit how many writes it took and how many seconds.
        clock: seconds since 1970.

    Raises:
        StoreError: see `conversation_store.errors`.
    """
    with locked(path) as real:
        backup.upgrade(real, key)  # blocks: nothing is to happen before it has ended
        async with open_database(real, key, prepare=migrate, committed=committed) as database:
            yield ConversationStore(StoreContext(database, real, clock, retention_days))


class ConversationStore:
    """Everything the bot remembers. Made by `open_store`.

    Attributes:
        messages: what came in.
        turns: what the model is shown, says and calls.
        helpers: parts of turns with conversations of their own.
        catch_up: what people have missed in groups.
        approvals: questions to people about calls with side effects.
        questions: those of the model, for whose answers turns wait.
        outbox: what goes out.
        doubts: what a start does not know.
        exchanges: what endpoints sign.
        upkeep: what keeps it small.
        memory: what it was asked to remember.
        instructions: how it is to be in chats.
        reminders: what people are to be told, or asked again, at a time.
        pairings: who was let in by a code, and who waits for it.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._database = context.database
        self.messages = MessageStore(context)
        self.turns = TurnStore(context)
        self.catch_up = CatchUpStore(context)
        self.helpers = HelperStore(context)
        self.approvals = ApprovalStore(context)
        self.questions = QuestionStore(context)
        self.outbox = OutboxStore(context)
        self.doubts = DoubtStore(context)
        self.exchanges = ExchangeStore(context)
        self.upkeep = StoreUpkeep(context)
        self.usage = UsageStore(context)
        self.grants = GrantStore(context)
        self.memory = MemoryStore(context)
        self.instructions = InstructionStore(context)
        self.reminders = ReminderStore(context)
        self.pairings = Pairings(context.database)

    @property
    def retention_days(self) -> int:
        """After how many days messages are deleted; may be changed at any time."""
        return self._context.retention_days

    @retention_days.setter
    def retention_days(self, days: int) -> None:
        self._context.retention_days = days

    @property
    def refusal(self) -> str | None:
        """Why the disk takes nothing now, in words; None while it does.

        Whoever writes meanwhile waits.
        """
        return self._database.refusal

    async def refusal_other_than(self, known: str | None) -> str | None:
        """Wait until `refusal` is another one, and return it."""
        return await self._database.refusal_other_than(known)

    async def get_metadata(self, name: str) -> str | None:
        """Return what the bot remembers about itself by a name."""
        return await self._database.read(lambda execute: metadata.find(execute, name))

    async def metadata_below(self, prefix: str) -> dict[str, str]:
        """Return what the bot remembers about itself by names that begin so."""
        return await self._database.read(lambda execute: metadata.below(execute, prefix))

    async def set_metadata(self, name: str, value: str) -> None:
        """Remember something about the bot itself, instead of what was known by the name."""
        await self._database.write(lambda execute: metadata.put(execute, name, value))
