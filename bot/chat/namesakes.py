"""Names of people in groups, so that the model can tell apart two people with one name."""

import hashlib
from typing import Final

from cachetools import LRUCache

from conversation_store.models import ChatId

MAX_KNOWN: Final = 10_000
"""Names in all groups; above it, the name used longest ago is forgotten."""
MAX_NAME_CHARACTERS: Final = 40
NAMELESS: Final = "Somebody"
_TAGS: Final = range(4, 33, 4)
"""Lengths of the tag; a longer one if somebody has taken a tag into their name."""


class Namesakes:
    """Knows who used a name first in each group; the next person gets a tag behind it."""

    def __init__(self) -> None:
        self._first: LRUCache[tuple[ChatId, str], str] = LRUCache(MAX_KNOWN)

    def name_for(self, chat: ChatId, aci: str, name: str | None) -> str:
        """Return a person's name, with a tag of the person's own if another one has the name."""
        shown = whole = (name or NAMELESS)[:MAX_NAME_CHARACTERS]
        tag = hashlib.sha256(aci.encode()).hexdigest()
        for length in _TAGS:
            if self._first.setdefault((chat, _folded(shown)), aci) == aci:
                break
            shown = f"{whole[: MAX_NAME_CHARACTERS - length - len(' ()')]} ({tag[:length]})"
        return shown


def _folded(name: str) -> str:
    """Return the letters and digits of a name, which is all that a reader goes by."""
    return "".join(filter(str.isalnum, name.casefold())) or name
