"""Finds the sums in a sentence: `How much is 15% of 80?` holds `15% of 80`."""

import re
from typing import Final

_SPOKEN: Final = (
    (re.compile(r"\bto the power of\b", re.IGNORECASE), "^"),
    (re.compile(r"\bdivided by\b", re.IGNORECASE), "/"),
    (re.compile(r"\bplus\b", re.IGNORECASE), "+"),
    (re.compile(r"\bminus\b", re.IGNORECASE), "-"),
    (re.compile(r"\btimes\b|(?<=\d)x(?=\d)|(?<=\d )x(?= \d)", re.IGNORECASE), "*"),
)
_SIGN: Final = r"[-+*/^%!\N{MULTIPLICATION SIGN}\N{DIVISION SIGN}\N{MINUS SIGN}]"
_RUN: Final = re.compile(
    rf"""(?:(?:
          \d | (?<=\d)e[-+]?(?=\d) | \.(?=\d)      # numbers, digit by digit
        | %\s*of\b | {_SIGN} | [√(),π]             # operators
        | \b[a-z]+\d*(?=\() | \b(?:pi|tau|e)\b     # functions and constants
        )\s*)+""",
    re.IGNORECASE | re.VERBOSE,
)
_CALCULATION: Final = re.compile(rf"[\w)%!]\s*{_SIGN}|[a-z\d]\(|√", re.IGNORECASE)
_BEFORE: Final = re.compile(
    r"(?:^|[,.;:!?]|\b(?:is|what's|whats|much|calculate|compute|evaluate|solve|work out|and))\s*$",
    re.IGNORECASE,
)
_AFTER: Final = re.compile(r"\s*(?:$|[?=.;:]|and\b|please\b|thanks\b)", re.IGNORECASE)


def find_expressions(text: str) -> list[str]:
    """Return the calculations that a text asks for, in their order.

    Other numbers (`a 24/7 service`) are left alone: a sum begins the text or follows words such as
    `what is`, and ends its sentence.
    """
    for spoken, symbol in _SPOKEN:
        text = spoken.sub(symbol, text)
    runs = ((run[0].strip().rstrip(",("), run) for run in _RUN.finditer(text))
    return [
        expression
        for expression, run in runs
        if _is_calculation(expression) and _stands_alone(text, run)
    ]


def _is_calculation(expression: str) -> bool:
    return any(map(str.isdigit, expression)) and _CALCULATION.search(expression) is not None


def _stands_alone(text: str, run: re.Match[str]) -> bool:
    before, after = text[max(0, run.start() - 40) : run.start()], text[run.end() :]
    return _BEFORE.search(before) is not None and _AFTER.match(after) is not None
