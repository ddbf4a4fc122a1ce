"""Which kind of calculation a text is: a look at its words, without reading it."""

import re
from enum import Enum, auto
from typing import Final

from tools.calculator.functions import CONSTANTS, FUNCTIONS
from tools.calculator.notation import INFIX_WORDS, NUMBER

MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_DATE_WORDS: Final = frozenset(
    (*MONTHS, *(month[:3] for month in MONTHS), "sept", *WEEKDAYS,
     "today", "tomorrow", "yesterday", "now", "weekday", "until", "till", "since", "ago")
)  # fmt: skip
_DATE: Final = re.compile(
    r"""
      (?<!\d)\d{4}-(?:\d\d-0\d|0\d-\d\d|1[0-2]-[123]\d)(?!\d)    # 2026-12-24, not 2026-120-5
    | (?<![\d.])\d{1,2}\.\d{1,2}\.\d{4}(?!\d)                    # 24.12.2026
    | (?<![\d/])\d{1,2}/\d{1,2}/(?:19|20)\d\d(?!\d)              # 03/04/2026
    | \d:\d\d                                                    # 14:30
    """,
    re.VERBOSE,
)
_NUMBER_OR_NAME: Final = re.compile(rf"{NUMBER}|([^\W\d_]\w*+)(\s*+\()?")
_UNIT_SIGN: Final = re.compile(r"[°'\"′″$€£¥₹₿⁻¹→]|->")  # noqa: RUF001 as people write them
_ARITHMETIC_WORDS: Final = frozenset((*FUNCTIONS, *CONSTANTS, *INFIX_WORDS, "π", "τ"))


class Reading(Enum):
    """What a text is about."""

    NUMBERS = auto()
    UNITS = auto()
    DATES = auto()


def reading(text: str) -> Reading:
    """Return what a text is about; what is neither about units nor about dates is arithmetic."""
    found = _NUMBER_OR_NAME.finditer(text.lower())
    words = {name[1] for name in found if name[1] and not name[2]}  # a name before ( is a function
    if _DATE.search(text) or not _DATE_WORDS.isdisjoint(words):
        return Reading.DATES
    if words <= _ARITHMETIC_WORDS and not _UNIT_SIGN.search(text):
        return Reading.NUMBERS
    return Reading.UNITS
