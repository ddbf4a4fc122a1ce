"""Tells by a few words in which of the bot's languages somebody writes."""

import re
import tomllib
from collections import Counter
from importlib import resources
from typing import Final

MAX_CHARACTERS: Final = 2_000
"""Of a text that are looked at: more say no more."""

SHORT: Final = 4
"""In so few words one that only one language has is enough: `Hola!`, `Danke`."""

_ARABIC: Final = re.compile(r"[\u0600-\u06ff]+")
_WORD: Final = re.compile(r"[^\W\d_]{2,}(?:'[^\W\d_]+)?|[^\W\d_]'[^\W\d_]+")
"""A single letter is a word in most of them."""

_FREQUENT: Final = {
    language: frozenset(words.split())
    for language, words in tomllib.loads(
        resources.files(__package__).joinpath("words.toml").read_text("utf-8")
    ).items()
}


def detect(text: str) -> str | None:
    """Return the language (ISO 639-1) of a text; None where a few words do not tell.

    Known are English, German, Spanish, French, Portuguese and Arabic.
    """
    words = _WORD.findall(text[:MAX_CHARACTERS].casefold().replace("\u2019", "'"))
    if not words:
        return None
    if sum(map(len, _ARABIC.findall(text[:MAX_CHARACTERS]))) * 2 > sum(map(len, words)):
        return "ar"
    found: Counter[str] = Counter()
    for word in dict.fromkeys(words):
        speakers = [language for language, known in _FREQUENT.items() if word in known]
        for language in speakers:
            found[language] += 4 // len(speakers)
    (best, most), (_, second) = [*found.most_common(2), ("", 0), ("", 0)][:2]
    needed = 4 if len(words) <= SHORT else 8
    return best if most >= needed and most > second else None
