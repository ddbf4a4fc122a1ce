"""Translations of the bot's own sentences, from the .po files (gettext) in this folder.

The program makes its sentences in English. It looks up the finished sentence: the whole, by a
pattern with places such as `{code}`, or line by line. Other sentences stay English.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

import polib

ENGLISH: Final = "en"
NAMES: Final = {
    ENGLISH: "English",
    "de": "Deutsch",
    "es": "Español",
    "fr": "Français",
    "pt": "Português",
    "ar": "العربية",
}
"""Names of the languages in themselves, by ISO 639-1."""
_FILES: Final = resources.files(__package__)
_ALL_NAMES: Final = tomllib.loads(_FILES.joinpath("names.toml").read_text("utf-8"))

_PLACE: Final = re.compile(r"\{(\w+)\}")
_OWN_WORDS: Final = frozenset({"file", "meaning", "minutes", "reason", "wait", "where", "why"})
"""Places for sentences of the program, which are translated too; people's words stay."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """An English sentence: named places between pieces of text, and its translation."""

    names: Sequence[str]
    pieces: Sequence[str]
    translation: str

    def places(self, sentence: str) -> dict[str, str] | None:
        """Return the words at the places of a sentence; None if it is another sentence.

        Takes linear time: the sentence may quote people.
        """
        first, *others, last = self.pieces
        if not (sentence.startswith(first) and sentence.endswith(last)):
            return None
        start, end = len(first), len(sentence) - len(last)
        found = []
        for piece in others:
            place_end = sentence.find(piece, start + 1, end)
            if place_end < 0:
                return None
            found.append(sentence[start:place_end])
            start = place_end + len(piece)
        if start >= end:
            return None
        return dict(zip(self.names, (*found, sentence[start:end]), strict=True))


@dataclass(frozen=True, slots=True)
class Catalog:
    """The translations of one language.

    Attributes:
        edges: beginnings or ends of which every sentence with places has one.
    """

    sentences: dict[str, str]
    patterns: tuple[Pattern, ...]
    edges: tuple[tuple[str, ...], tuple[str, ...]]

    def translated(self, sentence: str, *, nested: bool = True) -> str | None:
        """Return a sentence in this language, or None; with `nested`, also sentences inside it."""
        if (whole := self.sentences.get(sentence)) is not None:
            return whole
        begins, ends = self.edges
        if not (sentence.startswith(begins) or sentence.endswith(ends)):
            return None
        for pattern in self.patterns:
            if (places := pattern.places(sentence)) is not None:
                for name in _OWN_WORDS & places.keys() if nested else ():
                    places[name] = self.translated(places[name], nested=False) or places[name]
                return pattern.translation.format(**places)
        return None


def translated(text: str, language: str) -> str:
    """Return a text of the bot's own in a language, as far as it has been translated."""
    catalog = _CATALOGS.get(language)
    if catalog is None:
        return text
    lines = text.split("\n")
    found = [line and catalog.translated(line) for line in lines]
    # Only then: a place may stand for several lines, and must not swallow sentences of their own.
    if None in found and (whole := catalog.translated(text)) is not None:
        return whole
    both = zip(lines, found, strict=True)
    return "\n".join(line if said is None else said for line, said in both)


def code_of(word: str) -> str | None:
    """Return the code of a language from its code or its name in any of them, or None."""
    name = word.casefold()
    return next((code for code in NAMES if name in (code, *_ALL_NAMES[code].split())), None)


def read_catalog(language: str) -> Catalog:
    """Read the translations of a language."""
    file = _FILES.joinpath(f"{language}.po")
    entries = [entry for entry in polib.pofile(file.read_text("utf-8")) if entry.msgstr]
    patterns = tuple(
        Pattern(parts[1::2], parts[::2], entry.msgstr)
        for entry in entries
        if len(parts := _PLACE.split(entry.msgid)) > 1
    )
    begins = tuple(one.pieces[0] for one in patterns if one.pieces[0])
    ends = tuple(one.pieces[-1] for one in patterns if not one.pieces[0])
    sentences = {entry.msgid: entry.msgstr for entry in entries if "{" not in entry.msgid}
    return Catalog(sentences, patterns, (begins, ends))


# Read at the start: a sentence must not depend on a file that can be opened.
_CATALOGS: Final = {language: read_catalog(language) for language in NAMES if language != ENGLISH}
