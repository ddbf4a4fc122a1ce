r"""Show LaTeX of the common kind with Unicode signs: `\frac{1}{2}` as ½, `x^2` as x².

Phones show LaTeX as it was typed. A formula with anything unknown, such as a matrix, stays so. The
libraries that were tried change the meaning: `unicodeit` 0.7.5 reads `\left` as ≤ft, and
`pylatexenc` 2.11 shows `\frac{a+b}{c}` as a+b/c.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from typing import Any, Final

MAX_DEPTH: Final = 10

# Read at the start: an answer must not depend on a file that can be opened.
_TABLE: Final[dict[str, Any]] = tomllib.loads(
    resources.files(__package__).joinpath("formulas.toml").read_text("utf-8")
)
_SIGNS: Final[dict[str, str]] = (
    _TABLE["signs"]
    | dict.fromkeys(_TABLE["nothing"], "")
    | {name: name for name in _TABLE["functions"]}
)
_ABOVE, _BELOW, _DOUBLE = (str.maketrans(*_TABLE[name]) for name in ("above", "below", "double"))
_ROOTS: Final = {"": "√", "2": "√", "3": "∛", "4": "∜"}
_PART: Final = re.compile(r"\\[A-Za-z]+ ?|\\.|\s+|.", re.DOTALL)
_ONE_WORD: Final = re.compile(r"[\d.,]+|[^\W\d]+|.|\([^()]*\)")


class _Unknown(Exception):
    """The formula has something that cannot be shown."""


def in_unicode(formula: str) -> str | None:
    """Return a formula, without its delimiters, as text; None if it cannot be shown."""
    try:
        shown = _sequence(iter(_PART.findall(formula.strip())), 0)
    except (_Unknown, StopIteration):
        return None
    return re.sub(r" +(?=[ ),.;²³]|$)", "", shown).strip() or None


def _sequence(parts: Iterator[str], depth: int, end: str = "") -> str:
    """Return the text up to the part that ends it."""
    if depth > MAX_DEPTH:
        raise _Unknown
    shown: list[str] = []
    for part in parts:
        if part == end:
            return "".join(shown)
        if part in {"^", "_"}:
            shown.append(raised(_one(next(parts), parts, depth), is_above=part == "^"))
        else:
            shown.append(_one(part, parts, depth))
    if end:
        raise _Unknown
    return "".join(shown)


def _one(part: str, parts: Iterator[str], depth: int) -> str:
    """Return the text of a part with its arguments."""
    if part.startswith("\\"):
        return _command(part[1:].rstrip(), parts, depth) + " " * part[1:].endswith(" ")
    if part == "{":
        return _sequence(parts, depth + 1, "}")
    if part in {"}", "&", "^", "_"}:
        raise _Unknown
    return {"'": "\N{PRIME}", "~": " "}.get(part, " " if part.isspace() else part)


def _command(name: str, parts: Iterator[str], depth: int) -> str:
    if name in _TABLE["fractions"]:
        above = _together(_one(next(parts), parts, depth + 1).strip())
        whole = f"{above}/{_together(_one(next(parts), parts, depth + 1).strip())}"
        shown: str = _TABLE["vulgar"].get(whole, f"{whole} ")
        return shown
    if name in _TABLE["accents"]:
        letter = _one(next(parts), parts, depth)
        if len(letter) != 1:
            raise _Unknown
        return f"{letter}{_TABLE['accents'][name]}"
    if name == "sqrt":
        return _root(next(parts), parts, depth)
    if name in _TABLE["plain"]:
        return _one(next(parts), parts, depth)
    if name == "mathbb":
        return _one(next(parts), parts, depth).translate(_DOUBLE)
    if name not in _SIGNS and name:
        raise _Unknown
    return _SIGNS.get(name, " ")


def _root(part: str, parts: Iterator[str], depth: int) -> str:
    degree = ""
    if part == "[":
        degree = _sequence(parts, depth + 1, "]")
        part = next(parts)
    sign = _ROOTS.get(degree) or f"{raised(degree, is_above=True)}√"
    return f"{sign}{_together(_one(part, parts, depth + 1))}"


def raised(text: str, *, is_above: bool) -> str:
    """Return a text as superscript or subscript, or behind ^ or _ if it has no such letters."""
    text = text.strip()
    if text in {"°", "\N{PRIME}"}:
        return text
    changed = text.translate(_ABOVE if is_above else _BELOW)
    if text and all(old != new for old, new in zip(text, changed, strict=True)):
        return changed
    return f"{'^' if is_above else '_'}{_together(text)}"


def _together(text: str) -> str:
    """Return a text in parentheses unless it is one word."""
    text = text.strip()
    return text if _ONE_WORD.fullmatch(text) else f"({text})"
