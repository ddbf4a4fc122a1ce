"""The book of facts that tools write in, in the store."""

from collections.abc import Sequence
from typing import Final

from conversation_store.models import ChatId, Fact, NotRemembered
from conversation_store.sections.memory import MemoryStore
from tools.base import Caller
from tools.errors import ToolError
from tools.memory.book import Refusal
from tools.memory.tool import Memory

OUTSIDE: Final = "There is no memory outside of a conversation."

_REFUSALS: Final = {
    NotRemembered.OFF: Refusal.OFF,
    NotRemembered.FULL: Refusal.FULL,
    NotRemembered.KEPT_NOWHERE: Refusal.KEPT_NOWHERE,
}


class MemoryBook:
    """Keeps facts in the store. Implements `tools.memory.book.Book`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def of(self, caller: Caller) -> Memory:
        """Return the facts of the chat that a call is made in; raises ToolError outside of one."""
        if caller.turn is None:
            raise ToolError(OUTSIDE)
        return Memory(self, caller.chat, caller.turn, caller.call)

    async def remember(self, chat: str, text: str, *, turn: int, call: str) -> Fact | Refusal:
        """Keep a fact, once for each call, and return it."""
        kept = await self._store.remember(ChatId.parse(chat), text, turn_id=turn, call=call)
        return _REFUSALS[kept] if isinstance(kept, NotRemembered) else kept

    async def recall(
        self, chat: str, query: str, limit: int, *, turn: int
    ) -> Sequence[Fact] | Refusal:
        """Return facts of a chat, best first; without a query the newest."""
        found = await self._store.recall(ChatId.parse(chat), query, limit, turn_id=turn)
        return _REFUSALS[found] if isinstance(found, NotRemembered) else found

    async def forget(self, chat: str, number: int) -> bool:
        """Forget a fact; False where the chat never had one of that number."""
        return await self._store.forget(ChatId.parse(chat), number)
