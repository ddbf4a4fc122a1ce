"""The meaning of answers: yes, no or unclear; the chosen options; and the text for the model.

A yes lets a tool do something that cannot be undone, so the whole text has to mean yes. If it says
both yes and no, the bot asks back; if it has other words, the model reads them.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib import resources
from typing import Final

from conversation_store.models import QuestionTerms
from tools.base import Decision

BELOW: Final = "see their message below"
"""Stands for words that the model reads in the next message."""

CHOSE: Final = "The person chose: {options}"
WROTE: Final = (
    "The person answered in their own words: {words}\nThe options were: {options}\nIf they ask or"
    " want something else, answer that; the question is closed."
)
ANSWERED: Final = "The person answered: {words}"
NOBODY: Final = (
    "Nobody answered within a day. Go on without the answer, and say what you assumed instead."
)
ACCEPTED: Final = (
    "The person accepted the plan. Carry it out now, and keep the list of its steps with todo. What"
    " has side effects is still asked about by itself."
)
REFUSED: Final = (
    "The person refused the plan. Do not carry it out, nor propose it again; tell the person that"
    " it is dropped."
)
CHANGES: Final = (
    "The person answered the plan in their own words: {words}\nIt is not accepted yet. Propose the"
    " changed plan. If they ask or want something else, answer that. If they only agree, ask them"
    " for “yes” or 👍, and propose it again."
)
NOT_LIKE_THIS: Final = (
    "Not run: the person answered the question about this call in their own words: {words}\nDo what"
    " they want now. If that needs the call, perhaps changed, make it again; they are asked again."
)
NOBODY_DECIDED: Final = (
    "Nobody answered within a day, so the plan is not accepted. Do not carry it out; tell the"
    " person that it may be asked for again."
)

_TOKEN: Final = re.compile(r"\w+")
_BETWEEN: Final = re.compile(r"[,;\n]+")
_JOINING: Final = frozenset({"and", "und", "y", "et", "e", "و"})
"""Words between two numbers."""

_KEYCAP_TEN: Final = "🔟"
_KEYCAP: Final = re.compile("\ufe0f?\u20e3")
"""Code points that turn a digit into a keycap emoji, as in a reaction."""

MAX_CHOICE_CHARACTERS: Final = 1_500
"""Length of ten options of the maximum length."""

PHRASES: Final = "phrases.toml"

MAX_CHARACTERS: Final = 100
"""Longest answer to a yes-or-no question."""

MAX_WORDS_OF_A_PHRASE: Final = 5

_CLEAR: Final = ({"yes"}, {"always"}, {"no"})

_Phrase = tuple[str, ...]

_IGNORED: Final = frozenset(
    {*range(0x1F3FB, 0x1F400), *map(ord, "\N{ZERO WIDTH JOINER}\N{VARIATION SELECTOR-16}♀♂")}
)
"""Code points that change only the look of an emoji: skin tones, genders, colour."""

_APOSTROPHE: Final = "'"
_CURVED_APOSTROPHE: Final = "\N{RIGHT SINGLE QUOTATION MARK}"


def answer_of(terms: QuestionTerms, text: str, *, in_own_words: bool) -> str | None:
    """Return the answer that a text or an emoji gives; None if the bot has to ask back.

    About a call, it is a `Decision`, or other text for the model, which means no.

    Args:
        in_own_words: the text is meant as an answer, even without known words.
    """
    if terms.kind == "choice":
        return _choice(terms, text, in_own_words=in_own_words)
    meaning, is_call = meaning_of(text), terms.kind == "call"
    if meaning in {Meaning.YES, Meaning.ALWAYS}:
        return Decision.YES if is_call else ACCEPTED
    if meaning is Meaning.NO:
        return Decision.NO if is_call else REFUSED
    if not in_own_words or (is_call and meaning is Meaning.UNCLEAR):
        return None
    return (NOT_LIKE_THIS if is_call else CHANGES).format(words=text.strip())


def _choice(terms: QuestionTerms, text: str, *, in_own_words: bool) -> str | None:
    if choice := chosen(text, terms.options, multiple=terms.multiple):
        return chose(terms, choice)
    if not in_own_words or (terms.options and _numbers(text)):
        return None
    options = "; ".join(f"{number}. {one}" for number, one in enumerate(terms.options, 1))
    return (WROTE if options else ANSWERED).format(words=text.strip(), options=options)


def chose(terms: QuestionTerms, choice: Sequence[int]) -> str:
    """Return the text for the model about the chosen options, by index."""
    return CHOSE.format(options="; ".join(terms.options[place] for place in choice))


def chosen(text: str, options: Sequence[str], *, multiple: bool) -> tuple[int, ...]:
    """Return the indexes of the options that a text chooses; empty if it says anything else."""
    if len(text) > MAX_CHOICE_CHARACTERS:
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
    """Return the numbers of a text as indexes; empty if it also has other words.

    They are digits or words: `2`, `option 2`, `number two`, `the second one`.
    """
    plain = _KEYCAP.sub(" ", text.replace(_KEYCAP_TEN, " 10 "))
    tokens = _TOKEN.findall(unicodedata.normalize("NFKC", plain).casefold())
    found = [_index(token) for token in tokens if token not in _BETWEEN_NUMBERS]
    if tokens[-1:] == ["one"] and len(found) > 1:
        found.pop()
    return [] if None in found else [place for place in found if place is not None]


def _index(token: str) -> int | None:
    if token.isdecimal() and len(token) <= len("10"):
        return int(token) - 1
    return _NUMBERS.get(token)


def _normal(text: str) -> str:
    """Return the words of a text in one spelling, without punctuation around them."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = " ".join(folded.split()).strip(".,;:!?()[]\"'“”„«»… ")
    return words or folded.strip()


class Meaning(Enum):
    """Meaning of an answer to a yes-or-no question."""

    YES = "yes"
    ALWAYS = "always"
    """Yes, now and for later calls."""
    NO = "no"
    UNCLEAR = "unclear"
    OTHER = "other"
    """Not an answer."""


def meaning_of(text: str) -> Meaning:
    """Return the meaning of a text as an answer to a yes-or-no question."""
    if len(text) > MAX_CHARACTERS:
        return Meaning.OTHER
    words = tuple(_words(text))
    if not words:
        # `?` and `...` refer to the last message.
        return Meaning.UNCLEAR if text.strip() else Meaning.OTHER
    said = {_kind_of(phrase) for phrase in _phrases_in(words)} - {"polite"}
    if said == {"yes", "always"}:
        return Meaning.ALWAYS
    if said <= {"yes", "always", "no", "unsure"}:
        return Meaning(said.pop()) if said in _CLEAR else Meaning.UNCLEAR
    return Meaning.OTHER


def _kind_of(phrase: _Phrase) -> str:
    """Return the kind of a phrase, also if its end is drawn out as in `jaaa`; empty if unknown."""
    *before, last = phrase
    short = last.rstrip(last[-1]) + last[-1]
    return _KNOWN.get(phrase) or _KNOWN.get((*before, short), "")


def _phrases_in(words: _Phrase) -> Iterator[_Phrase]:
    """Yield known phrases, preferring longer ones, and the words between them."""
    while words:
        sizes = range(min(MAX_WORDS_OF_A_PHRASE, len(words)), 1, -1)
        size = next((size for size in sizes if words[:size] in _KNOWN), 1)
        yield words[:size]
        words = words[size:]


def _words(text: str) -> Iterator[str]:
    """Yield words and emoji in one spelling, without punctuation."""
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


# Read at the start: a turn must not depend on a file that can be opened.
_LANGUAGES: Final[dict[str, dict[str, list[str]]]] = tomllib.loads(
    resources.files(__package__).joinpath(PHRASES).read_text("utf-8")
)
_KNOWN: Final[dict[_Phrase, str]] = {
    tuple(_words(phrase)): kind
    for language in _LANGUAGES.values()
    for kind, phrases in language.items()
    if kind not in {"numbers", "counting"}
    for phrase in phrases
}
"""The kind of each phrase: yes, always, no, unsure or polite."""
_NUMBERS: Final = {
    word: place
    for language in _LANGUAGES.values()
    for place, words in enumerate(language.get("numbers", ()))
    for word in words.split()
}
"""The index that each word for a number means."""
_BETWEEN_NUMBERS: Final = _JOINING.union(
    *(language.get("counting", ()) for language in _LANGUAGES.values())
)
