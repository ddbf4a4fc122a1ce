"""What came in: messages, edits, deletions, and what was overheard."""

from collections.abc import Sequence

from conversation_store import (
    deletions,
    edits,
    inbox,
    outgoing,
    overheard,
    turns,
)
from conversation_store.database import (
    Execute,
)
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    EditOutcome,
    OverheardMessage,
    ReceivedMessage,
    UnfinishedWork,
)
from conversation_store.sections.context import StoreContext


class MessageStore:
    """What came in: messages, edits, deletions, and what was overheard.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def accept(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[AcceptedMessage | None, ...]:
        """Store messages, edits and deletions that now owe an answer.

        Returns:
            one for each; None where it is a duplicate, or was deleted or edited before it came.
        """

        def insert(execute: Execute) -> tuple[AcceptedMessage | None, ...]:
            return tuple(inbox.insert(execute, message) for message in messages)

        return await self._context.database.write(insert)

    async def overhear(self, messages: Sequence[ReceivedMessage]) -> None:
        """Keep what people say to each other, for the chat's next turn; bounded for each chat."""
        if self._context.retention_days == 0:
            return

        def insert(execute: Execute) -> None:
            for message in messages:
                if not inbox.is_deleted(execute, message):
                    overheard.add(execute, message)
            for chat in {message.chat for message in messages}:
                overheard.trim(execute, chat)

        await self._context.database.write(insert)

    async def overheard(self, chat: ChatId) -> tuple[OverheardMessage, ...]:
        """Return what was said in a chat and no turn was told yet, oldest first."""
        return await self._context.database.read(lambda execute: overheard.waiting(execute, chat))

    async def is_past(self, message: ReceivedMessage) -> bool:
        """Whether nobody will look at a message: it was deleted or edited before it came."""
        return await self._context.database.read(lambda execute: inbox.is_past(execute, message))

    async def find_target(self, message: ReceivedMessage) -> int | None:
        """Return the inbox row that an edit or a deletion is about, in whatever state it is.

        Where a message and its edits are several rows, it is the latest that still waits.
        """
        return await self._context.database.read(
            lambda execute: inbox.find_target(execute, message)
        )

    async def knows_target(self, message: ReceivedMessage) -> bool:
        """Whether an edit or a deletion is about anything that was received or overheard."""

        def look(execute: Execute) -> bool:
            if inbox.find_target(execute, message) is not None:
                return True
            return overheard.is_known(execute, message, *inbox.target(execute, message))

        return await self._context.database.read(look)

    async def edit_overheard(self, edit: ReceivedMessage) -> None:
        """Let what was said to others read otherwise; nothing is kept of an edit of anything else.

        What a turn was told stays as it was told.
        """
        if await self._context.database.write(
            lambda execute: edits.change_overheard(execute, edit)
        ):
            await self._context.database.scrub()

    async def merge_edit(self, edit: AcceptedMessage, target: AcceptedMessage) -> AcceptedMessage:
        """Let a message that waits read as its edit says, and end the edit; return it so."""
        merged = await self._context.database.write(
            lambda execute: edits.merge(execute, edit, target)
        )
        self._context.database.scrub_soon()
        return merged

    async def settle_edit(
        self, edit: AcceptedMessage, *, answered_within_ms: int
    ) -> tuple[EditOutcome, AcceptedMessage]:
        """Find out what an edit is about, when nothing of its chat waits before it.

        Args:
            edit: the edit.
            answered_within_ms: an older answer stays as it is.

        Returns:
            UNKNOWN: the edit waits on, to be answered as a message. TOO_LATE: it is closed.
            ANSWERED: the turn of the earlier answer is forgotten, and the edit, which is returned
            with `replaces`, waits to be answered in its place.
        """

        def settle(execute: Execute) -> tuple[EditOutcome, AcceptedMessage]:
            return edits.settle(execute, edit, self._context.now_ms() - answered_within_ms)

        outcome, settled = await self._context.database.write(settle)
        if outcome is not EditOutcome.UNKNOWN:
            await self._context.database.scrub()
        return outcome, settled

    async def forget(self, deletion: AcceptedMessage) -> tuple[int, ...]:
        """Carry out a deletion: its message goes with all that was derived from it.

        A turn that runs and was told an overheard message that is deleted goes when it ends.
        What comes after its deletion is refused.

        Returns:
            inbox rows that waited and are closed now, whose turns are to be stopped. Other
            messages of such a turn wait on, without a turn.
        """
        closed = await self._context.database.write(
            lambda execute: deletions.perform(execute, deletion)
        )
        await self._context.database.scrub()
        return closed

    async def waiting_of(self, accepted: Sequence[AcceptedMessage]) -> tuple[AcceptedMessage, ...]:
        """Return those of some messages that still owe an answer."""

        def select(execute: Execute) -> tuple[AcceptedMessage, ...]:
            return tuple(one for one in accepted if inbox.is_waiting(execute, one.id))

        return await self._context.database.read(select)

    async def stop(self, inbox_ids: Sequence[int]) -> None:
        """Close messages that a person no longer wants answered, with what they began."""

        def close(execute: Execute) -> None:
            for inbox_id in inbox_ids:
                if inbox.outcome(execute, inbox_id) != "deleted":
                    turns.abandon(execute, inbox_id, self._context.now_ms())
                    inbox.close(execute, inbox_id, "stopped")
                    inbox.close_joined(execute, inbox_id)

        await self._context.database.write(close)
        self._context.database.scrub_soon()

    async def unfinished(self) -> UnfinishedWork:
        """Return what a start has to go on with."""

        def select(execute: Execute) -> UnfinishedWork:
            return UnfinishedWork(outgoing.waiting(execute), inbox.waiting(execute))

        return await self._context.database.read_aside(select)
