"""What came in: messages, edits, deletions, and what was overheard."""

from collections.abc import Sequence

from conversation_store import catch_up, deletions, edits, inbox, outgoing, overheard, turns
from conversation_store.connections import Execute
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    EditOutcome,
    OverheardMessage,
    ReceivedKind,
    ReceivedMessage,
    UnfinishedWork,
)
from conversation_store.sections.section import Section, reads, reads_aside, writes


class MessageStore(Section):
    """What came in: messages, edits, deletions, and what was overheard."""

    @writes
    def accept(
        self,
        execute: Execute,
        messages: Sequence[ReceivedMessage],
        *,
        unverified: frozenset[str] = frozenset(),
    ) -> tuple[AcceptedMessage | None, ...]:
        """Store messages, edits and deletions that now owe an answer.

        Args:
            execute: runs a statement.
            messages: what came in.
            unverified: ACIs of those whose words are told to nobody who has missed them.

        Returns:
            one for each; None where it is a duplicate, or was deleted or edited before it came.
        """
        accepted = tuple(inbox.insert(execute, message) for message in messages)
        for message, one in zip(messages, accepted, strict=True):
            if message.author in unverified:
                continue
            if message.kind is ReceivedKind.EDIT:
                catch_up.change(execute, message, *inbox.target(execute, message))
            elif message.kind is ReceivedKind.MESSAGE and one is not None:
                self._keep(execute, message)
        return accepted

    def _keep(self, execute: Execute, message: ReceivedMessage) -> None:
        if self._context.retention_days:
            catch_up.keep(execute, message)

    async def overhear(self, messages: Sequence[ReceivedMessage]) -> None:
        """Keep what people say to each other, for the chat's next turn; bounded for each chat."""
        if self._context.retention_days:
            await self._overhear(messages)

    @writes
    def _overhear(self, execute: Execute, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if not inbox.is_deleted(execute, message):
                overheard.add(execute, message)
                self._keep(execute, message)
        for chat in {message.chat for message in messages}:
            overheard.trim(execute, chat)

    @reads
    def overheard(self, execute: Execute, chat: ChatId) -> tuple[OverheardMessage, ...]:
        """Return what was said in a chat and no turn was told yet, oldest first."""
        return overheard.waiting(execute, chat)

    @reads
    def is_past(self, execute: Execute, message: ReceivedMessage) -> bool:
        """Whether nobody will look at a message: it was deleted or edited before it came."""
        return inbox.is_past(execute, message)

    @reads
    def find_target(self, execute: Execute, message: ReceivedMessage) -> int | None:
        """Return the inbox row that an edit or a deletion is about, in whatever state it is.

        Where a message and its edits are several rows, it is the latest that still waits.
        """
        return inbox.find_target(execute, message)

    @reads
    def knows_target(self, execute: Execute, message: ReceivedMessage) -> bool:
        """Whether an edit or a deletion is about anything that was received or overheard."""
        if inbox.find_target(execute, message) is not None:
            return True
        return overheard.is_known(execute, message, *inbox.target(execute, message))

    async def edit_overheard(self, edit: ReceivedMessage) -> None:
        """Let what was said to others read otherwise; nothing is kept of an edit of anything else.

        What a turn was told stays as it was told.
        """
        if await self._edit_overheard(edit):
            await self._database.scrub()

    @writes
    def _edit_overheard(self, execute: Execute, edit: ReceivedMessage) -> bool:
        return edits.change_overheard(execute, edit)

    async def merge_edit(self, edit: AcceptedMessage, target: AcceptedMessage) -> AcceptedMessage:
        """Let a message that waits read as its edit says, and end the edit; return it so."""
        merged = await self._merge_edit(edit, target)
        self._database.scrub_soon()
        return merged

    @writes
    def _merge_edit(
        self, execute: Execute, edit: AcceptedMessage, target: AcceptedMessage
    ) -> AcceptedMessage:
        return edits.merge(execute, edit, target)

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
        outcome, settled = await self._settle_edit(edit, answered_within_ms)
        if outcome is not EditOutcome.UNKNOWN:
            await self._database.scrub()
        return outcome, settled

    @writes
    def _settle_edit(
        self, execute: Execute, edit: AcceptedMessage, answered_within_ms: int
    ) -> tuple[EditOutcome, AcceptedMessage]:
        return edits.settle(execute, edit, self._context.now_ms() - answered_within_ms)

    @reads
    def told_turn(self, execute: Execute, deletion: AcceptedMessage) -> int | None:
        """Return the turn that was told an overheard message that a deletion is about."""
        return overheard.told_turn(
            execute, deletion.message, *inbox.target(execute, deletion.message)
        )

    async def forget(self, deletion: AcceptedMessage) -> tuple[int, ...]:
        """Carry out a deletion: its message goes with all that was derived from it.

        A turn that runs and was told an overheard message that is deleted goes when it ends.
        What comes after its deletion is refused.

        Returns:
            inbox rows that waited and are closed now, whose turns are to be stopped. Other
            messages of such a turn wait on, without a turn.
        """
        closed = await self._forget(deletion)
        await self._database.scrub()
        return closed

    @writes
    def _forget(self, execute: Execute, deletion: AcceptedMessage) -> tuple[int, ...]:
        return deletions.perform(execute, deletion)

    @reads
    def waiting_of(
        self, execute: Execute, accepted: Sequence[AcceptedMessage]
    ) -> tuple[AcceptedMessage, ...]:
        """Return those of some messages that still owe an answer."""
        return tuple(one for one in accepted if inbox.is_waiting(execute, one.id))

    async def stop(self, inbox_ids: Sequence[int]) -> None:
        """Close messages that a person no longer wants answered, with what they began."""
        await self._stop(inbox_ids)
        self._database.scrub_soon()

    @writes
    def _stop(self, execute: Execute, inbox_ids: Sequence[int]) -> None:
        for inbox_id in inbox_ids:
            if inbox.outcome(execute, inbox_id) != "deleted":
                turns.abandon(execute, inbox_id, self._context.now_ms())
                inbox.close(execute, inbox_id, "stopped")
                inbox.close_joined(execute, inbox_id)

    @reads_aside
    def unfinished(self, execute: Execute) -> UnfinishedWork:
        """Return what a start has to go on with."""
        return UnfinishedWork(outgoing.waiting(execute), inbox.waiting(execute))
