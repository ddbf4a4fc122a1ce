"""Turns that wait for people's answers: nothing of them is in memory but which ones they are.

Whoever takes a turn from here decides what becomes of it: it goes on, is stopped, or is about other
words now. That is one step on the event loop, so it is only ever one of them.
"""

from collections.abc import Callable

from bot.observability import metrics
from conversation_store.models import AcceptedMessage, ChatId
from conversation_store.store import ConversationStore


class SuspendedTurns:
    """Which turns wait for people.

    Args:
        store: has all the rest of them.
        queue: lets the messages of a turn be answered, behind what waits in their chat.
        forget: listens no longer for answers to a turn's questions.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        queue: Callable[[AcceptedMessage], None],
        forget: Callable[[int], None],
    ) -> None:
        self._store = store
        self._queue = queue
        self._forget = forget
        self._chats: dict[int, ChatId] = {}
        metrics.SUSPENDED_TURNS.set_function(lambda: len(self._chats))

    async def resume(self) -> frozenset[int]:
        """Return the turns that a restart has left waiting."""
        return await self._store.questions.suspended_turns()

    def add(self, chat: ChatId, turn_id: int) -> None:
        """Let a turn wait."""
        self._chats[turn_id] = chat

    async def go_on(self, turn_id: int) -> None:
        """Let a turn go on that has its answers, if it still waits."""
        accepted = await self._store.questions.suspended_turn(turn_id)
        if self._chats.pop(turn_id, None) is not None and accepted is not None:
            self._queue(accepted)

    def take_before(self, chat: ChatId, inbox_id: int | None = None) -> tuple[int, ...]:
        """Take those turns of a chat out that began before a message, or all; return them."""
        taken = tuple(
            turn_id
            for turn_id, where in self._chats.items()
            if where == chat and (inbox_id is None or turn_id < inbox_id)
        )
        for turn_id in taken:
            self.end(turn_id)
        return taken

    async def take_with(self, chat: ChatId, inbox_id: int) -> AcceptedMessage | None:
        """Take the turn out that answers a message, and return its messages; None without one."""
        if chat not in self._chats.values():
            return None
        turn_id = await self._store.questions.turn_of(inbox_id)
        accepted = await self._store.questions.suspended_turn(turn_id)
        if turn_id not in self._chats or accepted is None:
            return None
        self.end(turn_id)
        return accepted

    def end(self, turn_id: int) -> None:
        """Let a turn wait no longer, whether it did or not."""
        self._chats.pop(turn_id, None)
        self._forget(turn_id)

    def end_unless_waiting(self, turn_id: int) -> None:
        """Listen no longer for answers to a turn that does not wait."""
        if turn_id not in self._chats:
            self._forget(turn_id)
