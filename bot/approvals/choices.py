"""Which options somebody chooses who answers in numbers or in an option's own words."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_TOKEN: Final = re.compile(r"\w+")
_BETWEEN: Final = re.compile(r"[,;\n]+")
_JOINING: Final = frozenset({"and", "und", "y", "et", "e", "و"})
"""What people write between two numbers."""

_KEYCAP_TEN: Final = "🔟"
_KEYCAP: Final = re.compile("\ufe0f?\u20e3")
"""What makes a digit the picture of a key, as in a reaction."""

MAX_CHARACTERS: Final = 1_500
"""Nothing longer is ten options of the greatest length."""


def chosen(text: str, options: Sequence[str], *, multiple: bool) -> tuple[int, ...]:
    """Return which options a text chooses, as places from 0; nothing where it says anything else.

    Args:
        text: what somebody wrote.
        options: the words of each.
        multiple: whether several may be chosen.
    """
    if len(text) > MAX_CHARACTERS:
        return ()
    places = {_normal(option): place for place, option in enumerate(options)}
    if (place := places.get(_normal(text))) is not None:
        return (place,)
    numbers = _numbers(text)
    found = numbers or [places.get(_normal(part), -1) for part in _BETWEEN.split(text)]
    if not all(0 <= place < len(options) for place in found):
        return ()
    distinct = tuple(sorted(set(found)))
    return distinct if multiple or len(distinct) == 1 else ()


def _numbers(text: str) -> list[int]:
    """Return the places that a text of nothing but numbers names."""
    plain = _KEYCAP.sub(" ", text.replace(_KEYCAP_TEN, " 10 "))
    tokens = [token for token in _TOKEN.findall(plain.casefold()) if token not in _JOINING]
    if not all(token.isdecimal() and len(token) <= len("10") for token in tokens):
        return []
    return [int(token) - 1 for token in tokens]


def _normal(text: str) -> str:
    """Return the words of a text in one spelling, without punctuation around them."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = " ".join(folded.split()).strip(".,;:!?()[]\"'“”„«»… ")
    return words or folded.strip()
