"""Show text of models, servers and strangers to people: whole, with nothing hidden.

Characters that a phone would hide or move are spelt out between ⟨ and ⟩:

- `⟨12 spaces⟩`: a run of three or more, which could push the rest out of sight;
- `⟨U+202E⟩`, `⟨12 times U+200B⟩`: control, bidi, zero-width, tag and blank characters, variation
  selectors, line separators and unusual spaces; also combining marks that do not belong to the
  letter before them, such as a stroke through a digit;
- `⟨rtl שלום ltr⟩`: right-to-left letters. The Latin words around them keep everything else in the
  order in which it was written; Unicode's bidi algorithm (UAX #9) would swap numbers and fields.

The marks cannot be forged: a text's own ⟨ and ⟩ are spelt out, too. So two different texts never
read the same. Letters that look alike in two scripts, as in Latin and
Cyrillic, are left as they are.
"""

import json
import re
import unicodedata
from functools import lru_cache
from itertools import groupby
from typing import Final

MAX_MARKS: Final = 3
"""Combining marks on one letter; more would pile up over the neighbouring lines."""

_MAX_RUN: Final = 200
"""Letters in one `⟨rtl … ltr⟩`, so that a long text can be divided between two of them."""

_CURIOUS: Final = re.compile(r" {3,}|[^\x20-\x7e]+")

# Printable for Python, yet invisible, or they change their neighbours.
# Source: Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt; the blank Braille
# pattern, musical null notehead and Khitan filler; Hangul vowels and finals, which join the letter
# before them; and U+FFFC, which phones replace by a name.
_HIDDEN: Final = re.compile(
    "[\u034f\u115f-\u11ff\u17b4\u17b5\u180b-\u180f\u2800\u3164\ud7b0-\ud7ff\ufe00-\ufe0f\uffa0"
    "\ufffc\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
_BRACKETS: Final = frozenset("⟨⟩\u2329\u232a\u276c\u276d\u3008\u3009")
"""The brackets of the marks, and brackets that look like them."""

# Controls, zero width space, marks of direction, separators of lines, embeddings and isolates, tags
# and private use. The joiners stay: emoji and several scripts need them.
_STEERING: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ue000-\uf8ff\ufeff\ufff9-\ufffc\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)

# The blocks of right-to-left scripts; numbers stand alone, because a phone reorders them.
_NUMBER: Final = "\u0660-\u066c\u06dd\u06f0-\u06f9\u07c0-\u07c9"
_LETTER: Final = (
    "\u0590-\u065f\u066d-\u06dc\u06de-\u06ef\u06fa-\u07bf\u07ca-\u08ff"
    "\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
)
_RIGHT_TO_LEFT: Final = re.compile(
    rf"[{_NUMBER}]{{1,{_MAX_RUN}}}|[{_LETTER}](?:[ .,!?'-]{{0,2}}[{_LETTER}]){{0,{_MAX_RUN - 1}}}"
)


def shown(value: object) -> str:
    """Return a JSON value for people: all of it, on one line, with nothing hidden."""
    return visible(json.dumps(value, ensure_ascii=False))


def visible(text: str) -> str:
    """Return a text with hidden and moved characters spelt out; see the module for the marks."""
    spelt: dict[str, str] = {}  # 64 KiB may hold 20,000 runs, most of them alike

    def spell(match: re.Match[str]) -> str:
        run = match[0]
        known = spelt.get(run)
        if known is None:
            known = spelt[run] = _spelt_out(run)
        return known

    return _RIGHT_TO_LEFT.sub(r"⟨rtl \g<0> ltr⟩", _CURIOUS.sub(spell, text))


def plain(text: str) -> str:
    """Return a text of several lines in which nothing moves or hides letters.

    Milder than `visible`: letters of every script stay, so that people can read their own language.
    Never use it for questions about side effects.
    """
    lines = (" ".join(line.split()) for line in text.strip().splitlines())
    return "\n".join(_STEERING.sub(lambda found: _mark(found[0], 1), line) for line in lines)


def one_line(text: str) -> str:
    """Return the text of `plain` on one line."""
    return " ".join(plain(text).split())


def short_line(text: str, max_characters: int) -> str:
    """Return a text on one line, without invisible characters and cut to a length."""
    seen = "".join(letter for letter in text if letter.isprintable() or letter.isspace())
    line = " ".join(seen.split())
    return line if len(line) <= max_characters else line[: max_characters - 1].rstrip() + "…"


def _spelt_out(run: str) -> str:
    if run[0] == " ":
        return f"⟨{len(run):,} spaces⟩"
    if len(run) == 1:
        return run if _is_seen(run) and not _combines(run) else _mark(run, 1)
    spelt: list[str] = []
    base = marks = ""
    for character, repeated in groupby(run):
        count = len([*repeated])
        if _combines(character):
            is_first = count == 1 and character not in marks and len(marks) < MAX_MARKS
            shows = is_first and _belongs_to(character, base) and _is_one(base + marks + character)
            if len(marks) < MAX_MARKS:  # further ones are not shown
                marks += character
        else:
            shows, marks = _is_seen(character), ""
            base = character if shows else ""
        spelt.append(character * count if shows else _mark(character, count))
    return "".join(spelt)


def _mark(character: str, count: int) -> str:
    times = f"{count:,} times " if count > 1 else ""
    return f"⟨{times}U+{ord(character):04X}⟩"


@lru_cache(maxsize=8_192)
def _combines(character: str) -> bool:
    return unicodedata.category(character).startswith("M")


@lru_cache(maxsize=8_192)
def _is_seen(character: str) -> bool:
    return (
        character.isprintable()
        and character not in _BRACKETS
        and not _HIDDEN.match(character)
        # Some are the same as another character to Unicode, such as the Kelvin sign.
        and unicodedata.is_normalized("NFC", character)
    )


@lru_cache(maxsize=8_192)
def _is_one(letter: str) -> bool:
    """Tell whether no other character or order of marks looks the same."""
    return unicodedata.is_normalized("NFC", letter)


@lru_cache(maxsize=8_192)
def _belongs_to(mark: str, base: str) -> bool:
    """Tell whether a mark is of the same script as the letter before it, like a vowel sign."""
    return (
        _is_seen(mark)
        and bool(base)
        and unicodedata.category(base).startswith("L")
        and script_of(mark) == script_of(base)
    )


def script_of(character: str) -> str:
    """Return the first word of a character's name: that of its script, for letters and signs."""
    return unicodedata.name(character, "").partition(" ")[0]
