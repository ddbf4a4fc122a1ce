"""What goes out, until it is marked as sent."""

from conversation_store import (
    doubts,
    outgoing,
)
from conversation_store.database import (
    Execute,
)
from conversation_store.models import (
    ChatId,
    Interrupted,
    OutgoingMessage,
)
from conversation_store.sections.context import StoreContext


class OutboxStore:
    """What goes out, until it is marked as sent.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def said(self, chat: ChatId, signal_timestamp: int) -> str:
        """Return what the model said in a message of the bot, by Signal's timestamp of it (ms).

        Empty where the bot sent no such message to that chat, or where its words are not kept, or
        are not the model's.
        """
        return await self._context.database.read(
            lambda execute: outgoing.said(execute, chat, signal_timestamp)
        )

    async def add_note(self, chat: ChatId, text: str) -> OutgoingMessage:
        """Store a message of the bot's own accord, which is to be sent."""

        def add(execute: Execute) -> OutgoingMessage:
            return outgoing.note(execute, chat=chat, text=text, now_ms=self._context.now_ms())

        return await self._context.database.write(add)

    async def as_waiting(self, part: OutgoingMessage) -> OutgoingMessage | None:
        """Return a message as it may be sent now: without what it quotes, where that is gone.

        None where it is not to be sent any more: what it answers was deleted, or disappeared long
        ago.
        """
        return await self._context.database.read(lambda execute: outgoing.as_waiting(execute, part))

    async def mark_sent(self, part: OutgoingMessage, signal_timestamp: int) -> None:
        """Mark a part as sent and forget what was in it; the history has the answer."""

        def update(execute: Execute) -> bool:
            doubts.note_if_forgotten(execute, part.id, signal_timestamp)
            return outgoing.mark_sent(execute, part.id, signal_timestamp, self._context.now_ms())

        self._context.leave_no_words(have_disappeared=await self._context.database.write(update))

    async def mark_failed(self, part: OutgoingMessage, *, give_up: bool) -> None:
        """Count a failed attempt; a part that is given up keeps its text."""

        def update(execute: Execute) -> None:
            outgoing.mark_failed(execute, part.id, give_up=give_up)

        await self._context.database.write(update)

    async def mark_proven(self, part: OutgoingMessage, sending: Interrupted, proof: int) -> None:
        """Mark a message as sent by an earlier process, with the timestamp that proves it."""

        def update(execute: Execute) -> bool:
            doubts.extend(execute, sending)
            return outgoing.mark_sent(execute, part.id, proof, self._context.now_ms())

        self._context.leave_no_words(have_disappeared=await self._context.database.write(update))
