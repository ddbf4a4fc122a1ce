"""What people mean when they answer a question: yes, no, or neither for sure.

A yes lets a tool do something that cannot be undone. So it has to be a yes from beginning to end:
words that are not known turn it into a question back, and so does a text that says both.
"""

import tomllib
import unicodedata
from collections.abc import Iterator
from enum import Enum
from importlib import resources
from typing import Final

PHRASES: Final = "phrases.toml"

MAX_CHARACTERS: Final = 100
"""Nothing longer is an answer to yes or no."""

MAX_WORDS_OF_A_PHRASE: Final = 5

_CLEAR: Final = ({"yes"}, {"always"}, {"no"})

_Phrase = tuple[str, ...]

_IGNORED: Final = frozenset(
    {*range(0x1F3FB, 0x1F400), *map(ord, "\N{ZERO WIDTH JOINER}\N{VARIATION SELECTOR-16}♀♂")}
)
"""What changes how an emoji looks, and not what it says: skin tones, genders, colour."""

_APOSTROPHE: Final = "'"
_CURVED_APOSTROPHE: Final = "\N{RIGHT SINGLE QUOTATION MARK}"


class Meaning(Enum):
    """What a text says to a question that is answered by yes or no."""

    YES = "yes"
    ALWAYS = "always"
    """Yes, now and for some time."""
    NO = "no"
    UNCLEAR = "unclear"
    OTHER = "other"
    """It speaks of something else."""


def meaning_of(text: str) -> Meaning:
    """Return what a text answers to a question of yes or no.

    OTHER neither begins with an answer nor is a doubt as a whole.
    """
    if len(text) > MAX_CHARACTERS:
        return Meaning.OTHER
    words = tuple(_words(text))
    if not words:
        # `?` and `...` speak of what was said last.
        return Meaning.UNCLEAR if text.strip() else Meaning.OTHER
    said = {_KNOWN.get(phrase, "") for phrase in _phrases_in(words)} - {"polite"}
    if said == {"yes", "always"}:
        return Meaning.ALWAYS
    if said and said <= {"yes", "always", "no", "unsure"}:
        return Meaning(said.pop()) if said in _CLEAR else Meaning.UNCLEAR
    return Meaning.UNCLEAR if words[0] in _FIRST_WORDS else Meaning.OTHER


def _phrases_in(words: _Phrase) -> Iterator[_Phrase]:
    """Yield known phrases, the longest that fits first, and words that are in none."""
    while words:
        sizes = range(min(MAX_WORDS_OF_A_PHRASE, len(words)), 1, -1)
        size = next((size for size in sizes if words[:size] in _KNOWN), 1)
        yield words[:size]
        words = words[size:]


def _words(text: str) -> Iterator[str]:
    """Yield words and emoji in one spelling; punctuation says nothing."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    word = ""
    for character in plain.replace(_CURVED_APOSTROPHE, _APOSTROPHE):
        kind = unicodedata.category(character)
        if ord(character) in _IGNORED:
            continue
        if kind[0] in "LMN" or (character == _APOSTROPHE and word):
            word += character
            continue
        if word:
            yield word.rstrip(_APOSTROPHE)
        word = ""
        if kind == "So":
            yield character
    if word:
        yield word.rstrip(_APOSTROPHE)


def _known() -> dict[_Phrase, str]:
    """Return what each phrase says: yes, always, no, unsure or polite."""
    return {
        tuple(_words(phrase)): kind
        for language in _LANGUAGES.values()
        for kind, phrases in language.items()
        if kind != "begins"
        for phrase in phrases
    }


def _first_words() -> frozenset[str]:
    return frozenset(
        word
        for language in _LANGUAGES.values()
        for phrase in language.get("begins", ())
        for word in _words(phrase)
    )


# Read at the start: a turn must not depend on a file that can be opened.
_LANGUAGES: Final[dict[str, dict[str, list[str]]]] = tomllib.loads(
    resources.files(__package__).joinpath(PHRASES).read_text("utf-8")
)
_KNOWN: Final = _known()
_FIRST_WORDS: Final = _first_words()
