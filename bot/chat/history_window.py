"""Which earlier turns the model is shown: from the same turn on for as long as they fit.

A history that loses its oldest turn with every new one begins differently each time, and an
endpoint that caches the beginnings of requests can reuse hardly anything. So when a history no
longer fits, a good part of it goes at once, and the next requests begin alike.
"""

from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

from conversation_store.history import MAX_HISTORY_ROWS
from conversation_store.models import ChatId, Message
from conversation_store.store import ConversationStore

KEPT_SHARE: Final = 0.7
"""Part of the room that history keeps after the oldest turns are left out."""

MAX_CHATS: Final = 10_000
"""A chat that is forgotten here may lose more of its history than it had to, once."""


@dataclass(eq=False, repr=False, slots=True)
class HistoryWindow:
    """Reads the history of chats."""

    store: ConversationStore
    _first_turns: LRUCache[str, int] = field(
        default_factory=lambda: LRUCache(MAX_CHATS), init=False
    )

    async def read(
        self, chat: ChatId, *, max_bytes: int, before: int | None = None
    ) -> tuple[tuple[Message, ...], ...]:
        """Return the turns to be shown, oldest first.

        Args:
            chat: the chat.
            max_bytes: UTF-8 bytes that they may take.
            before: a turn that is not shown, nor any later one; None: all are.
        """
        first_turn = self._first_turns.get(chat, 0)
        history = await self.store.turns.history(
            chat, max_bytes=max_bytes, first_turn=first_turn, before=before
        )
        if not history.whole:
            history = await self.store.turns.history(
                chat,
                max_bytes=int(max_bytes * KEPT_SHARE),
                max_messages=int(MAX_HISTORY_ROWS * KEPT_SHARE),
                before=before,
            )
            self._first_turns[chat] = history.first_turn
        return history.turns
