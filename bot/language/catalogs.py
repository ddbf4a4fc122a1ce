"""Translations of the bot's own sentences, from gettext's .po files beside this module.

The program makes its sentences in English. A translation is found by the finished sentence: whole,
by a pattern with places such as `{code}`, or line by line. What has none stays English.
"""

import re
from collections.abc import Iterator
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
"""By ISO 639-1, as those who speak them call them."""

_PLACE: Final = re.compile(r"\\\{(\w+)\\\}")


@dataclass(frozen=True, slots=True)
class Catalog:
    """The translations of one language: of whole sentences, and of those with places in them."""

    sentences: dict[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...]

    def translated(self, sentence: str) -> str | None:
        """Return a sentence in this language; None where there is no translation."""
        if (whole := self.sentences.get(sentence)) is not None:
            return whole
        for pattern, translation in self.patterns:
            if (found := pattern.fullmatch(sentence)) is not None:
                places = found.groupdict()
                return translation.format(
                    **{name: self.sentences.get(said, said) for name, said in places.items()}
                )
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


def read_catalog(language: str) -> Catalog:
    """Read the translations of a language."""
    file = resources.files(__package__).joinpath(f"{language}.po")
    entries = [entry for entry in polib.pofile(file.read_text("utf-8")) if entry.msgstr]
    return Catalog(
        {entry.msgid: entry.msgstr for entry in entries if "{" not in entry.msgid},
        tuple(_patterns(entries)),
    )


def _patterns(entries: list[polib.POEntry]) -> Iterator[tuple[re.Pattern[str], str]]:
    for entry in entries:
        if "{" in entry.msgid:
            source = _PLACE.sub(r"(?P<\1>.+?)", re.escape(entry.msgid))
            yield re.compile(source, re.DOTALL), entry.msgstr


# Read at the start: a sentence must not depend on a file that can be opened.
_CATALOGS: Final = {language: read_catalog(language) for language in NAMES if language != ENGLISH}
