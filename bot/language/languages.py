"""The language of the bot in each chat: chosen there, or detected from messages."""

import re
import tomllib
from collections import Counter
from importlib import resources
from typing import Final

from cachetools import LRUCache

from bot.language.catalogs import ENGLISH, NAMES, translated
from conversation_store.store import ConversationStore

MAX_CHATS: Final = 10_000
"""Chats whose language is in memory; other chats have English until the next message."""

CHOSEN: Final = "language of "
"""Prefix of the key of a chosen language; the chat follows."""

MAX_CHARACTERS: Final = 2_000
"""The beginning of a text is enough."""

SHORT: Final = 4
"""In a text this short, one word of a single language is enough: `Hola!`, `Danke`."""

_ARABIC: Final = re.compile(r"[\u0600-\u06ff]+")
_WORD: Final = re.compile(r"[^\W\d_]{2,}(?:'[^\W\d_]+)?|[^\W\d_]'[^\W\d_]+")
"""A single letter is a word in most of them."""

_SPEAKERS: Final[dict[str, list[str]]] = {}
"""The languages of each frequent word."""
for _language, _words in tomllib.loads(
    resources.files(__package__).joinpath("words.toml").read_text("utf-8")
).items():
    for _word in _words.split():
        _SPEAKERS.setdefault(_word, []).append(_language)


class Languages:
    """The languages of all chats."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._chosen: dict[str, str] = {}
        self._heard: LRUCache[str, str] = LRUCache(MAX_CHATS)

    async def resume(self) -> None:
        """Load the choices before messages come in."""
        found = await self._store.metadata_below(CHOSEN)
        self._chosen = {
            name.removeprefix(CHOSEN): value for name, value in found.items() if value in NAMES
        }

    def notice(self, chat: str, text: str) -> None:
        """Learn the language of a chat from a message."""
        text = text.removeprefix("!plan ")
        if not text.startswith("!") and (language := detect(text)) is not None:
            self._heard[chat] = language

    def of(self, chat: str) -> str:
        """Return the language of a chat."""
        return self._chosen.get(chat) or self._heard.get(chat, ENGLISH)

    def has_heard(self, chat: str) -> bool:
        """Return whether people have written in one of the languages."""
        return chat in self._heard

    def is_chosen(self, chat: str) -> bool:
        """Return whether a person has chosen the language of a chat."""
        return chat in self._chosen

    async def choose(self, chat: str, language: str | None) -> None:
        """Set the language of a chat; None detects it from messages."""
        await self._store.set_metadata(CHOSEN + chat, language or "")
        if language is None:
            self._chosen.pop(chat, None)
        else:
            self._chosen[chat] = language

    def say(self, chat: str, text: str) -> str:
        """Translate a sentence of the bot for a chat."""
        return translated(text, self.of(chat))


def detect(text: str) -> str | None:
    """Return the language (ISO 639-1) of a text; None if its words are not enough.

    Supports English, German, Spanish, French, Portuguese and Arabic.
    """
    words = _WORD.findall(text[:MAX_CHARACTERS].casefold().replace("\u2019", "'"))
    if sum(map(len, _ARABIC.findall(text[:MAX_CHARACTERS]))) * 2 > sum(map(len, words)):
        return "ar"
    found: Counter[str] = Counter()
    for word in dict.fromkeys(words):
        speakers = _SPEAKERS.get(word, ())
        for language in speakers:
            found[language] += 4 // len(speakers)
    (best, most), (_, second) = [*found.most_common(2), ("", 0), ("", 0)][:2]
    needed = 4 if len(words) <= SHORT else 8
    return best if most >= needed and most > second else None
