"""JSON as models write it: with single quotes, trailing commas, Python's words, bare names.

What is not whole stays unread: half a call must never run with half its arguments.
"""

import json
import re
from typing import Final

MAX_DEPTH: Final = 32
MAX_VALUES: Final = 20_000

_SPACE: Final = r"(?>\s+|//[^\n]*\n|/\*.{0,2000}?\*/)*+"
"""And comments, each read in one way only: else many of them take time without end."""

_TOKEN: Final = re.compile(
    _SPACE + r"(?:(?P<punctuation>[{}\[\]:,])"
    r'|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|\'[^\'\\]*(?:\\.[^\'\\]*)*\')'
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<word>[A-Za-z_$][\w$-]*))",
    re.DOTALL,
)
_WORDS: Final = {
    "true": True, "false": False, "null": None,
    "True": True, "False": False, "None": None, "undefined": None,
}  # fmt: skip
_STRICT: Final = json.JSONDecoder(strict=False)
_ESCAPE: Final = re.compile(r'\\(.)|"|\n|\r|\t', re.DOTALL)
_ESCAPED: Final = {'"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def read_json(text: str, start: int = 0) -> tuple[object, int] | None:
    """Return the object or list that begins at a place, and where it ends.

    None where none begins there, or none that is whole.
    """
    try:
        found = _STRICT.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    else:
        return found if _is_shallow(found[0]) else None
    try:
        reader = _Reader(text, start)
        return reader.value(), reader.position
    except _Unreadable:
        return None


def _is_shallow(value: object) -> bool:
    """Whether a value is nested no deeper than whoever reads it can follow."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def read_object(text: str) -> dict[str, object] | None:
    """Return the object that a text is; None where it is something else, or more."""
    read = read_json(text, len(text) - len(text.lstrip()))
    if read is None or not isinstance(read[0], dict) or text[read[1] :].strip():
        return None
    return read[0]


class _Unreadable(Exception):
    """There is no value here."""


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self.position = start
        self._text = text
        self._values = 0

    def value(self, depth: int = 0) -> object:
        token = self._next()
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise _Unreadable
        match token.lastgroup:
            case "punctuation" if token["punctuation"] == "{":
                return self._object(depth)
            case "punctuation" if token["punctuation"] == "[":
                return self._list(depth)
            case "string":
                return _string(token["string"])
            case "number":
                return _number(token["number"])
            case "word" if token["word"] in _WORDS:
                return _WORDS[token["word"]]
        raise _Unreadable

    def _object(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while not self._ends("}"):
            token = self._next()
            if token.lastgroup not in {"string", "word"}:
                raise _Unreadable
            name = token["word"] or _string(token["string"])
            if not self._ends(":"):
                raise _Unreadable
            found[name] = self.value(depth + 1)
            if not self._ends(",") and not self._is_at("}"):
                raise _Unreadable
        return found

    def _list(self, depth: int) -> list[object]:
        found: list[object] = []
        while not self._ends("]"):
            found.append(self.value(depth + 1))
            if not self._ends(",") and not self._is_at("]"):
                raise _Unreadable
        return found

    def _next(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self.position)
        if token is None:
            raise _Unreadable
        self.position = token.end()
        return token

    def _is_at(self, punctuation: str) -> bool:
        token = _TOKEN.match(self._text, self.position)
        return token is not None and token["punctuation"] == punctuation

    def _ends(self, punctuation: str) -> bool:
        """Take the next token if it is this one."""
        before = self.position
        if self._next()["punctuation"] == punctuation:
            return True
        self.position = before
        return False


def _string(token: str) -> str:
    """Return what a string in either quotes says; an escape that JSON lacks stands for itself."""
    said = '"' + _ESCAPE.sub(_escaped, token[1:-1]) + '"'
    try:
        value = json.loads(said, strict=False)
    except ValueError:
        raise _Unreadable from None
    return str(value)


def _escaped(found: re.Match[str]) -> str:
    letter: str | None = found[1]
    if letter is None:
        return _ESCAPED[found[0]]
    return found[0] if letter in '"\\/bfnrtu' else _ESCAPED.get(letter, letter)


def _number(token: str) -> int | float:
    try:
        return int(token)
    except ValueError:
        return float(token)
