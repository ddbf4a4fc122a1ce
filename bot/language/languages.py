"""In which language the bot itself speaks in each chat: chosen there, or as people write there."""

from typing import Final, Protocol

from cachetools import LRUCache

from bot.language.catalogs import ENGLISH, NAMES, translated
from bot.language.detection import detect

MAX_CHATS: Final = 10_000
"""Chats whose language is known at once; in others it is English until somebody writes."""

CHOSEN: Final = "language of "
"""What the choice of a chat is remembered by, before the chat."""


class Memory(Protocol):
    """Remembers by names. Implemented by `conversation_store.store.ConversationStore`."""

    async def metadata_below(self, prefix: str) -> dict[str, str]:
        """Return what is remembered by names that begin so."""
        ...

    async def set_metadata(self, name: str, value: str) -> None:
        """Remember something by a name."""
        ...


class Languages:
    """The languages of all chats."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chosen: dict[str, str] = {}
        self._heard: LRUCache[str, str] = LRUCache(MAX_CHATS)

    async def resume(self) -> None:
        """Know again what was chosen; before anything comes in."""
        found = await self._memory.metadata_below(CHOSEN)
        self._chosen = {
            name.removeprefix(CHOSEN): value for name, value in found.items() if value in NAMES
        }

    def notice(self, chat: str, text: str) -> None:
        """Hear what somebody writes in a chat."""
        if not text.startswith("!") and (language := detect(text)) is not None:
            self._heard[chat] = language

    def of(self, chat: str) -> str:
        """Return the language of a chat."""
        return self._chosen.get(chat) or self._heard.get(chat, ENGLISH)

    def is_chosen(self, chat: str) -> bool:
        """Whether somebody has chosen the language of a chat."""
        return chat in self._chosen

    async def choose(self, chat: str, language: str | None) -> None:
        """Speak a language in a chat from now on; None: as people write there."""
        await self._memory.set_metadata(CHOSEN + chat, language or "")
        if language is None:
            self._chosen.pop(chat, None)
        else:
            self._chosen[chat] = language

    def say(self, chat: str, text: str) -> str:
        """Return a text of the bot's own as it is said in a chat."""
        return translated(text, self.of(chat))
