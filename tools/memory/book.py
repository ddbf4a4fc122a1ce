"""Where the facts of chats are kept."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol


class Fact(Protocol):
    """Something that was remembered. `conversation_store.models.Fact` is one."""

    @property
    def number(self) -> int:
        """Names it in its chat, for good."""
        ...

    @property
    def text(self) -> str:
        """What it says."""
        ...

    @property
    def said_at(self) -> int:
        """When the message came that it is from, in ms since 1970."""
        ...

    @property
    def expires_at(self) -> int | None:
        """When that message disappears, and this with it."""
        ...


class Refusal(StrEnum):
    """Why a book does not do something; the value is what the model is told."""

    OFF = (
        "Memory is off in this chat: nothing was remembered or looked up. Tell the person that"
        " !memory on switches it on again."
    )
    FULL = (
        "Not remembered: the memory of this chat is full. Tell the person that !memory lists what"
        " is in it, and forget what they no longer need."
    )
    KEPT_NOWHERE = (
        "Not remembered: in this chat nothing is kept beyond the answer to a message. Tell the"
        " person so."
    )


class Book(Protocol):
    """Keeps facts, each of one chat. Implemented by `bot.chat.memory_book.MemoryBook`."""

    async def remember(self, chat: str, text: str, *, turn: int, call: str) -> Fact | Refusal:
        """Keep a fact, once for each call, and return it."""
        ...

    async def recall(
        self, chat: str, query: str, limit: int, *, turn: int
    ) -> Sequence[Fact] | Refusal:
        """Return facts of a chat, best first; without a query the newest."""
        ...

    async def forget(self, chat: str, number: int) -> bool:
        """Forget a fact; False where the chat never had one of that number."""
        ...
