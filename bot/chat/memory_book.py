"""The facts that tools remember, in the store."""

from collections.abc import Sequence
from typing import Final

from conversation_store.memory import MemoryStore
from conversation_store.models import ChatId, NotRemembered
from conversation_store.models import Fact as StoredFact
from tools.base import Caller
from tools.errors import ToolError
from tools.memory import Fact, Memory

OUTSIDE: Final = "There is no memory outside of a conversation."

_REFUSALS: Final = {
    NotRemembered.OFF: (
        "Memory is off in this chat: nothing was remembered or looked up. Tell the person that"
        " !memory on switches it on again."
    ),
    NotRemembered.FULL: (
        "Not remembered: the memory of this chat is full. Tell the person that !memory lists what"
        " is in it, and forget what they no longer need."
    ),
    NotRemembered.KEPT_NOWHERE: (
        "Not remembered: in this chat nothing is kept beyond the answer to a message. Tell the"
        " person so."
    ),
}


def memory_of(store: MemoryStore, caller: Caller) -> Memory:
    """Return the facts of the chat of a call; raises ToolError outside of a turn."""
    if (turn := caller.turn) is None:
        raise ToolError(OUTSIDE)
    chat = ChatId.parse(caller.chat)

    async def remember(text: str) -> Fact:
        kept = await store.remember(chat, text, turn_id=turn, call=caller.call)
        if isinstance(kept, NotRemembered):
            raise ToolError(_REFUSALS[kept])
        return _plain(kept)

    async def recall(query: str, limit: int) -> Sequence[Fact]:
        found = await store.recall(chat, query, limit, turn_id=turn)
        if isinstance(found, NotRemembered):
            raise ToolError(_REFUSALS[found])
        return [_plain(fact) for fact in found]

    async def forget(number: int) -> bool:
        return await store.forget(chat, number)

    return Memory(remember, recall, forget)


def _plain(fact: StoredFact) -> Fact:
    return Fact(fact.number, fact.text, fact.said_at, fact.expires_at)
