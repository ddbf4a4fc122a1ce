"""What goes out, until it is marked as sent."""

from conversation_store import outgoing
from conversation_store.connections import Execute
from conversation_store.models import ChatId, Interrupted, OutgoingMessage
from conversation_store.sections import doubts
from conversation_store.sections.section import Section, reads, writes


class OutboxStore(Section):
    """What goes out, until it is marked as sent."""

    @reads
    def said(self, execute: Execute, chat: ChatId, signal_timestamp: int) -> str:
        """Return what the model said in a message of the bot, by Signal's timestamp of it (ms).

        Empty where the bot sent no such message to that chat, or where its words are not kept, or
        are not the model's.
        """
        return outgoing.said(execute, chat, signal_timestamp)

    @writes
    def add_note(self, execute: Execute, chat: ChatId, text: str) -> OutgoingMessage:
        """Store a message of the bot's own accord, which is to be sent."""
        return outgoing.note(execute, chat=chat, text=text, now_ms=self._context.now_ms())

    @reads
    def as_waiting(self, execute: Execute, part: OutgoingMessage) -> OutgoingMessage | None:
        """Return a message as it may be sent now: without what it quotes, where that is gone.

        None where it is not to be sent any more: what it answers was deleted, or disappeared long
        ago.
        """
        return outgoing.as_waiting(execute, part)

    async def mark_sent(self, part: OutgoingMessage, signal_timestamp: int) -> None:
        """Mark a part as sent and forget what was in it; the history has the answer."""
        has_disappeared = await self._mark_sent(part, signal_timestamp)
        self._context.leave_no_words(have_disappeared=has_disappeared)

    @writes
    def _mark_sent(self, execute: Execute, part: OutgoingMessage, signal_timestamp: int) -> bool:
        doubts.note_if_forgotten(execute, part.id, signal_timestamp)
        return outgoing.mark_sent(execute, part.id, signal_timestamp, self._context.now_ms())

    @writes
    def mark_failed(self, execute: Execute, part: OutgoingMessage, *, give_up: bool) -> None:
        """Count a failed attempt; a part that is given up keeps its text."""
        execute(
            "UPDATE outbox SET attempts = attempts + 1, state = ? WHERE id = ?",
            ("given_up" if give_up else "waiting", part.id),
        )

    async def mark_proven(self, part: OutgoingMessage, sending: Interrupted, proof: int) -> None:
        """Mark a message as sent by an earlier process, with the timestamp that proves it."""
        has_disappeared = await self._mark_proven(part, sending, proof)
        self._context.leave_no_words(have_disappeared=has_disappeared)

    @writes
    def _mark_proven(
        self, execute: Execute, part: OutgoingMessage, sending: Interrupted, proof: int
    ) -> bool:
        doubts.extend(execute, sending)
        return outgoing.mark_sent(execute, part.id, proof, self._context.now_ms())
