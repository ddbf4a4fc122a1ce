"""JSON Schemas made plain: no references, no `allOf`, no `oneOf`, nothing malformed.

The schemas of MCP servers are written by strangers. A plain schema accepts every value that the
original accepts, and sometimes more: what is malformed, what cannot be said plainly (`not`, `if`,
`patternProperties`, ...) and what is nested too deep is left out. The work is bounded by the
characters that a plain schema may have: where references would make more of them, fewer levels are
described, in the worst case none.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from tools.schema.words import value_words, with_words

Plain = dict[str, Any]

MAX_CHARACTERS: Final = 32_768
_CHARACTERS_OF_A_SCHEMA: Final = 16  # beside its words
_DEPTHS: Final = (24, 8, 3)
"""Levels that are described; the next where those before have too many characters."""
_MAX_VALUE_DEPTH: Final = 8
_MAX_NUMBER: Final = 1e300
_MAX_PATTERN_CHARACTERS: Final = 256
_UNCOMMON: Final = re.compile(r"\(\?(?!:)|\\[1-9k]")
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class _TooLarge(Exception):
    """The plain schema has more characters than it may have."""


def plain(schema: object) -> Plain:
    """Return the plain form of a schema, with as many levels as MAX_CHARACTERS allow."""
    for depth in _DEPTHS:
        try:
            return _Walk(schema, depth).plain(schema)
        except _TooLarge:
            continue
    return {}


def joined(*parts: Mapping[str, Any]) -> Plain:
    """Return a plain schema for what fits all of some plain schemas.

    Properties are joined; otherwise the first holds where several say something, which may accept
    more, never less.
    """
    found: Plain = {}
    properties: dict[str, list[Plain]] = {}
    required: dict[str, None] = {}
    for part in parts:
        for key, value in part.items():
            found.setdefault(key, value)
        for name, inner in part.get("properties", {}).items():
            properties.setdefault(name, []).append(inner)
        required |= dict.fromkeys(part.get("required", ()))
    if "properties" in found:
        found["properties"] = {
            name: inner[0] if len(inner) == 1 else joined(*inner)
            for name, inner in properties.items()
        }
    if "required" in found:
        found["required"] = list(required)
    return found


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
    )


def _is_count(value: object) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_types(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


_SHAPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _are_types,
    "description": _is_text,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "format": _is_text,
    "pattern": _is_text,
    "minLength": _is_count,
    "maxLength": _is_count,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "minItems": _is_count,
    "maxItems": _is_count,
    "uniqueItems": lambda value: isinstance(value, bool),
    "minProperties": _is_count,
    "maxProperties": _is_count,
    "required": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "default": lambda _: True,
    "examples": lambda value: isinstance(value, list),
}
"""The keywords that contain no schemas, and how each has to look."""


class _Walk:
    """One way through a schema, down to a depth, with a bound on the characters that it meets."""

    def __init__(self, root: object, deepest: int) -> None:
        self._root = root
        self._deepest = deepest
        self._characters_left = MAX_CHARACTERS

    def plain(self, schema: object, depth: int = 0, inside: tuple[str, ...] = ()) -> Plain:
        """Return the plain form; `inside` are the references that led here."""
        own = self._own(schema)
        if not isinstance(schema, Mapping) or depth == self._deepest:
            return own
        parts = [own | self._properties(schema, depth + 1, inside)]
        parts[0] |= self._items(schema, depth + 1, inside)
        parts += [self._union(schema.get(key), depth + 1, inside) for key in ("anyOf", "oneOf")]
        if isinstance(pointer := schema.get("$ref"), str):
            parts.append(self._referenced(pointer, depth + 1, inside))
        parts += [self.plain(part, depth + 1, inside) for part in _list(schema.get("allOf"))]
        return joined(*parts)

    def _own(self, schema: object) -> Plain:
        """Return the well-formed keywords that contain no schemas."""
        self._pay(_CHARACTERS_OF_A_SCHEMA)
        if not isinstance(schema, Mapping):
            return {}
        said = {key: schema[key] for key in _SHAPES if key in schema}
        if "const" in schema:
            said["enum"] = [schema["const"]]
        own = {
            key: value
            for key, value in said.items()
            if self._is_json(value) and _SHAPES[key](value)
        }
        if "pattern" in own and not _is_common(own["pattern"]):
            pattern = own.pop("pattern")
            own = with_words(own, [value_words("Regular expression", pattern)])
        for key in ("required", "type"):
            if isinstance(own.get(key), list):
                own[key] = list(dict.fromkeys(own[key]))
        if schema.get("nullable") is True and isinstance(own.get("type"), str):  # of OpenAPI
            own["type"] = [own["type"], "null"]
        return own

    def _properties(self, schema: Mapping[str, Any], depth: int, inside: tuple[str, ...]) -> Plain:
        found: Plain = {}
        if isinstance(properties := schema.get("properties"), Mapping):
            found["properties"] = {
                name: self.plain(inner, depth, inside)
                for name, inner in self._paid_for(properties)
                if inner is not False
            }
        others = schema.get("additionalProperties")
        if schema.get("patternProperties"):  # which say what some of the others are
            return found
        if others is False:
            found["additionalProperties"] = False
        elif isinstance(others, Mapping) and (plain_others := self.plain(others, depth, inside)):
            found["additionalProperties"] = plain_others
        return found

    def _items(self, schema: Mapping[str, Any], depth: int, inside: tuple[str, ...]) -> Plain:
        """Return what items are; a list of schemas is how drafts before 2020 wrote prefixItems."""
        found: Plain = {}
        items = schema.get("items")
        first = _list(schema.get("prefixItems")) or _list(items)
        if first:
            found["prefixItems"] = [self.plain(item, depth, inside) for item in first]
        if isinstance(items, Mapping) and (every := self.plain(items, depth, inside)):
            found["items"] = every
        return found

    def _union(self, choices: object, depth: int, inside: tuple[str, ...]) -> Plain:
        """Return what fits one of some schemas; `oneOf` is no more than that in a wider schema."""
        self._pay(len(_list(choices)))
        found = [
            self.plain(choice, depth, inside) for choice in _list(choices) if choice is not False
        ]
        if not all(found):  # one of them accepts everything
            return {}
        return found[0] if len(found) == 1 else {"anyOf": found} if found else {}

    def _referenced(self, pointer: str, depth: int, inside: tuple[str, ...]) -> Plain:
        """Return what a reference leads to; of what contains itself, only what it is."""
        self._pay(len(pointer))
        target = self._at(pointer)
        if pointer in inside:
            return self._own(target)
        return self.plain(target, depth, (*inside, pointer))

    def _at(self, pointer: str) -> object:
        """Return what a JSON pointer (RFC 6901) leads to; True, which accepts all, if nothing."""
        found = self._root
        if pointer != "#" and not pointer.startswith("#/"):
            return True
        for step in unquote(pointer[1:]).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and len(name) < 6:
                found = found[int(name)] if int(name) < len(found) else True
            else:
                return True
        return found

    def _paid_for(self, properties: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
        for name, inner in properties.items():
            if isinstance(name, str):
                self._pay(len(name))
                yield name, inner

    def _pay(self, characters: int) -> None:
        self._characters_left -= characters
        if self._characters_left < 0:
            raise _TooLarge

    def _is_json(self, value: object, depth: int = 0) -> bool:
        """Pay for a value and say whether JSON can hold it, not too deep."""
        self._pay(len(value) if isinstance(value, str) else 4)
        if isinstance(value, float):
            return math.isfinite(value)
        if isinstance(value, int):
            return abs(value) < _MAX_NUMBER
        if isinstance(value, Mapping):
            return depth < _MAX_VALUE_DEPTH and all(
                isinstance(key, str) and self._is_json(key) and self._is_json(inner, depth + 1)
                for key, inner in value.items()
            )
        if isinstance(value, list):
            return depth < _MAX_VALUE_DEPTH and all(
                self._is_json(inner, depth + 1) for inner in value
            )
        return value is None or isinstance(value, str)


def _is_common(pattern: str) -> bool:
    """Whether a regular expression means the same everywhere, as far as Python can tell.

    Looking around, flags and back references are not understood everywhere. Python would also take
    seconds for some classes that ignore case.
    """
    if len(pattern) > _MAX_PATTERN_CHARACTERS or _UNCOMMON.search(pattern):
        return False
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
