"""The numbers, words and signs of a calculation with units."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sandbox.errors import WorkError
from tools.calculator.functions import CONSTANTS, FUNCTIONS
from tools.calculator.notation import INFIX_WORDS, NUMBER

_LETTERS: Final = r"A-Za-zµμΩΩÅ"
_DEGREES: Final = r"(?:°|deg(?:rees?)?)\s*"
_FUNCTIONS: Final = "|".join(sorted(FUNCTIONS, key=len, reverse=True))
_PATTERN: Final = re.compile(
    rf"""
      (?P<space>\s+)
    | (?P<power>⁻?[¹²³]|(?<=[{_LETTERS}])(?<![xX])[1-9](?![0-9.]))
    | (?P<fraction>(?:[0-9]+\s+)?[0-9]+/[0-9]+(?=\s*[{_LETTERS}"'′″]))
    | (?P<number>{NUMBER})
    | (?P<function>(?i:{_FUNCTIONS})(?=\s*\())
    | (?P<celsius>{_DEGREES}[Cc](?:elsius)?(?![{_LETTERS}]))
    | (?P<fahrenheit>{_DEGREES}[Ff](?:ahrenheit)?(?![{_LETTERS}]))
    | (?P<word>[{_LETTERS}]+|[°$€£¥₹₿])
    | (?P<mark>(?<=[0-9])["'′″])
    | (?P<sign>\*\*|//|->|[→\-+*/%^(),!√π×·⋅÷∕−–])
    """,  # noqa: RUF001 as people write them
    re.VERBOSE,
)
_MARKS: Final = {"'": "foot", "′": "foot", '"': "inch", "″": "inch"}  # noqa: RUF001
_POWERS: Final = str.maketrans("⁻¹²³", "-123")
_NO_UNITS: Final = {*CONSTANTS, *INFIX_WORDS, "mod", "per"}


class Part(StrEnum):
    """What a lexeme is.

    A fraction is `1/2` or `2 1/2` before a word that may be a unit, a power the 2 of m² and m2.
    """

    NUMBER = "number"
    FRACTION = "fraction"
    WORD = "word"
    FUNCTION = "function"
    POWER = "power"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Lexeme:
    """One of them, and where it begins and ends in the text."""

    part: Part
    text: str
    start: int
    end: int


def lexemes(text: str) -> list[Lexeme]:
    """Split a text.

    Raises:
        WorkError: it holds a character that has no place in a calculation.
    """
    return list(_lexemes(text))


def _lexemes(text: str) -> Iterator[Lexeme]:
    position = 0
    while position < len(text):
        found = _PATTERN.match(text, position)
        if found is None:
            raise WorkError(f"{text[position]!r} has no place in a calculation.")
        if found.lastgroup != "space":
            part, meaning = _meaning(str(found.lastgroup), found[0])
            yield Lexeme(part, meaning, found.start(), found.end())
        position = found.end()


def _meaning(group: str, text: str) -> tuple[Part, str]:
    match group:
        case "celsius" | "fahrenheit":
            return Part.WORD, group
        case "mark":
            return Part.WORD, _MARKS[text]
        case "power":
            return Part.POWER, text.translate(_POWERS)
        case "word" if text.lower() in _NO_UNITS:
            return Part.SIGN, text.lower().replace("per", "/")
        case _:
            return Part(group), text
