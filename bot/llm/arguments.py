"""Read names and arguments of tool calls: models write JSON, nearly JSON, or JSON in a string.

Half a call must never run with half its arguments, so nothing is completed.
"""

import ast
import json
import re
import warnings
from typing import Final

MAX_DEPTH: Final = 32
MAX_PYTHON_CHARACTERS: Final = 8_000
MAX_PYTHON_BRACKETS: Final = 200
MAX_QUOTING: Final = 8
"""How often the arguments may be quoted as a JSON string, one inside another."""
MAX_OBJECTS: Final = 16
"""Objects in a row as the arguments of one call."""

_NO_JSON: Final = object()
_DECODER: Final = json.JSONDecoder(strict=False)
_WORDS: Final = {"true": True, "false": False, "null": None}
_AROUND: Final = re.compile(
    r"(?:[\s;,}\]]|```|~~~|(?<=```)\w{1,10}(?=\s)|</?tool_call>|<\|\w{1,30}\|>)*+"
)
"""Text without meaning before, between and after objects."""
_AROUND_A_NAME: Final = re.compile(r"^(?:functions|default_api|tools)[.:]|:\d{1,3}$")


def plain_name(name: str) -> str:
    """Return a tool's name without what some models write around it: `functions.calculate:0`."""
    return _AROUND_A_NAME.sub("", name) or name


def as_json(value: object) -> str:
    """Return arguments as JSON, if they are not JSON already; without lone surrogates."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def read_arguments(written: str) -> str:
    """Return a call's arguments as one JSON object; unchanged if they cannot be read as one."""
    value = _json_in(written)
    if isinstance(value, dict):
        return written
    value = _only_object(written) if value is _NO_JSON else value
    for _ in range(MAX_QUOTING):
        if not isinstance(value, str):
            break
        inner = _json_in(value)
        value = _only_object(value) if inner is _NO_JSON else inner
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return "{}"
    return as_json(value) if isinstance(value, dict) and _is_shallow(value) else written


def _json_in(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NO_JSON


def _only_object(text: str) -> object:
    """Return a text's only object that is not empty, `{}` if all are, False if several are not."""
    found: list[object] = []
    at = _after_mark(text, 0)
    while at < len(text):
        read = read_json(text, at)
        if read is None or len(found) == MAX_OBJECTS:
            return False
        value, end = read
        if value not in found:
            found.append(value)
        at = _after_mark(text, end)
    filled = [one for one in found if one] or [{}]
    return filled[0] if len(filled) == 1 else False


def _after_mark(text: str, at: int) -> int:
    around = _AROUND.match(text, at)
    return around.end() if around is not None else at


def read_json(text: str, start: int = 0, *, leniently: bool = True) -> tuple[object, int] | None:
    """Return the object or list that begins at a place, and its end; None if it is not whole.

    Half a call must never run with half its arguments, so nothing is completed.

    Args:
        start: the place of its first bracket.
        leniently: also read it as Python, up to the last bracket of the text.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _read_python(text, start) if leniently else None
    return (value, end) if isinstance(value, dict | list) and _is_shallow(value) else None


def _is_shallow(value: object, levels: int = MAX_DEPTH) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in inner)


def _read_python(text: str, start: int) -> tuple[object, int] | None:
    """Read single quotes, trailing commas, bare keys and Python's words by Python's own parser."""
    end = 1 + max(text.rfind("}"), text.rfind("]"))
    source = text[start : min(end, start + MAX_PYTHON_CHARACTERS + 1)]
    brackets = source.count("[") + source.count("{")
    if len(source) > MAX_PYTHON_CHARACTERS or brackets > MAX_PYTHON_BRACKETS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # silences warnings about escapes that only JSON has
            value = _literal(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return (value, end) if isinstance(value, dict | list) and _is_shallow(value) else None


def _literal(node: ast.expr) -> object:
    match node:
        case ast.Dict(keys, values):
            pairs = zip(keys, values, strict=True)
            return {_key(key): _literal(value) for key, value in pairs}
        case ast.List(items):
            return [_literal(item) for item in items]
        case ast.Constant(str() | int() | float() | None as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
        case ast.Name(name) if name in _WORDS:
            return _WORDS[name]
    raise ValueError("no literal")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(str() as name) | ast.Name(name):
            return name
    raise ValueError("no key")
