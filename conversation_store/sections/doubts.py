"""What a start does not know about the messages of earlier processes."""

from collections.abc import Sequence
from dataclasses import replace

from conversation_store import (
    doubts,
)
from conversation_store.database import (
    Execute,
)
from conversation_store.models import (
    Interrupted,
    Resent,
    SendsInDoubt,
)
from conversation_store.sections.context import StoreContext


class DoubtStore:
    """What a start does not know about the messages of earlier processes.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def load(self, now_ms: int, *, reaction_ms: int | None) -> SendsInDoubt:
        """Return what a start does not know about the messages of earlier processes.

        Args:
            now_ms: the time by signal-cli's clock; this process has sent nothing before it.
            reaction_ms: how long after a message the bot's reaction to it may be sent; None where
                it gives none.
        """
        return await self._context.database.read_aside(
            lambda execute: doubts.load(execute, now_ms, reaction_ms=reaction_ms)
        )

    async def resent(self, now_ms: int) -> tuple[Resent, ...]:
        """Return the messages of which there may be other copies that can still be deleted."""
        return await self._context.database.read_aside(
            lambda execute: doubts.resent(execute, now_ms)
        )

    async def known(self, timestamps: Sequence[int]) -> frozenset[int]:
        """Return those of some timestamps that belong to messages whose sending is stored."""
        return await self._context.database.read(lambda execute: doubts.known(execute, timestamps))

    def confirm(self, confirmed: Sequence[tuple[int, str]]) -> None:
        """Keep what phones confirmed; does not wait for the disk."""
        self._context.database.write_later(lambda execute: doubts.confirm(execute, confirmed))

    def note_unnamed(self, sending: Interrupted) -> None:
        """Remember a message that may have been sent without anybody's telling its timestamp.

        Does not wait for the disk. `until` is when its sending ended; signal-cli may be late.
        """
        late = replace(sending, until=sending.until + doubts.LATE_MS)
        self._context.database.write_later(lambda execute: doubts.note_unnamed(execute, late))

    async def expect_copy(self, sending: Interrupted) -> None:
        """Remember, before a message is sent again, that there may be one copy more of it."""
        await self._context.database.write(lambda execute: doubts.expect_copy(execute, sending))

    async def expect_deletion(self, part: int, *, since_ms: int, now_ms: int) -> None:
        """Remember, before a copy is deleted, that phones will confirm the deletion as well.

        Args:
            part: the message's row in the outbox.
            since_ms: the earliest timestamp that the deletion can have.
            now_ms: the time.
        """

        def update(execute: Execute) -> None:
            doubts.expect_deletion(execute, part, since_ms, now_ms)

        await self._context.database.write(update)

    async def copy_found(self, part: int, *, copy: int, standing: int) -> None:
        """Remember which copy of a message people see.

        Args:
            part: the message's row in the outbox.
            copy: Signal's timestamp that was not known.
            standing: Signal's timestamp of the copy that stays.
        """

        def update(execute: Execute) -> None:
            doubts.copy_found(execute, part, copy=copy, standing=standing)

        await self._context.database.write(update)
