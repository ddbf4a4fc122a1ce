"""The plain form of a JSON Schema, for the APIs of models and for the check of arguments.

Anthropic and Gemini refuse a whole request if one schema has a reference, a strange name or a
malformed keyword. The schemas of MCP servers are written by strangers. The plain form has
references in place, no `allOf` or `oneOf`, and nothing malformed or nested too deep. It accepts
every value that the original accepts, and sometimes more.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

Plain = dict[str, Any]

MAX_CHARACTERS: Final = 16_384
"""Bound of a plain schema, and so of the work that references can cause."""
MAX_WORDS: Final = 500
"""Bound of a schema or an expression that is quoted in a description, in characters."""
_DEPTHS: Final = (24, 8, 3)
"""Levels to describe: fewer if the schema gets too large."""
_CHARACTERS_OF_A_SCHEMA: Final = 16  # besides its words
_MAX_VALUE_DEPTH: Final = 8
_MAX_NUMBER: Final = 1e300

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NOT_AT_TOP: Final = frozenset({"anyOf", "enum", "items", "prefixItems", "type"})
"""Legal at the top of a tool's parameters, but APIs refuse it there."""


def plain(schema: object) -> Plain | None:
    """Return the plain form; None if it is too large even with few levels."""
    for depth in _DEPTHS:
        try:
            return _Walk(schema, depth).plain(schema)
        except _TooLarge:
            continue
    return None


def parameters_of(arguments: Plain) -> Plain:
    """Return a plain schema as the parameters of a tool, which are always an object."""
    if "object" not in arguments.get("type", "object"):
        arguments = {}
    rest = {key: value for key, value in arguments.items() if key not in _NOT_AT_TOP}
    return {"type": "object", "properties": {}, **rest}


def only_keywords(schema: Plain, keywords: Collection[str]) -> Plain:
    """Return a schema without other keywords, also in the schemas inside it."""
    found = inside(schema, lambda inner: only_keywords(inner, keywords))
    return {key: value for key, value in found.items() if key in keywords}


def inside(schema: Plain, change: Callable[[Plain], Plain]) -> Plain:
    """Return a schema with a change to every schema in it."""
    found = dict(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = change(found[key])
    for key in ("anyOf", "prefixItems"):
        if key in found:
            found[key] = [change(inner) for inner in found[key]]
    if "properties" in found:
        found["properties"] = {k: change(inner) for k, inner in found["properties"].items()}
    return found


def with_words(schema: Plain, words: Iterable[str]) -> Plain:
    """Return a schema with sentences added to its description."""
    description = schema.get("description", "").rstrip()
    if description and description[-1] not in ".!?:;":
        description += "."
    return {**schema, "description": " ".join(filter(None, (description, *words)))}


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


_KEYWORDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _are_types,
    "description": _is_text,
    "enum": lambda value: isinstance(value, list) and bool(value),
    "format": _is_text,
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
"""Keywords without schemas in them, each with a check of its value."""


class _TooLarge(Exception):
    """The plain schema has more than MAX_CHARACTERS."""


class _Walk:
    """Walk through a schema, down to a depth, within MAX_CHARACTERS."""

    def __init__(self, root: object, deepest: int) -> None:
        self._root = root
        self._deepest = deepest
        self._characters_left = MAX_CHARACTERS

    def plain(self, schema: object, depth: int = 0, inside: tuple[str, ...] = ()) -> Plain:
        """Return the plain form; `inside` has the references that led here."""
        own = self._own(schema)
        if not isinstance(schema, Mapping) or depth == self._deepest:
            return own

        def inner(part: object) -> Plain:
            return self.plain(part, depth + 1, inside)

        parts = [own | self._properties(schema, inner) | self._items(schema, inner)]
        parts += [self._union(schema.get(key), inner) for key in ("anyOf", "oneOf")]
        if isinstance(pointer := schema.get("$ref"), str):
            self._pay(len(pointer))
            target = self._at(pointer)
            is_circle = pointer in inside
            parts.append(
                self._own(target)
                if is_circle
                else self.plain(target, depth + 1, (*inside, pointer))
            )
        parts += map(inner, _list(schema.get("allOf")))
        return _joined(parts)

    def _own(self, schema: object) -> Plain:
        """Return the well-formed keywords without schemas in them."""
        self._pay(_CHARACTERS_OF_A_SCHEMA)
        if not isinstance(schema, Mapping):
            return {}
        said = {key: schema[key] for key in _KEYWORDS if key in schema}
        if "const" in schema:
            said["enum"] = [schema["const"]]
        own = {
            key: value
            for key, value in said.items()
            if self._is_json(value) and _KEYWORDS[key](value)
        }
        for key in ("required", "type"):
            if isinstance(own.get(key), list):
                own[key] = list(dict.fromkeys(own[key]))
        if schema.get("nullable") is True and isinstance(own.get("type"), str):  # of OpenAPI
            own["type"] = [own["type"], "null"]
        if isinstance(pattern := schema.get("pattern"), str) and self._is_json(pattern):
            # APIs differ in the expressions that they understand.
            own = with_words(own, [f"Regular expression: {pattern[:MAX_WORDS]}"])
        return own

    def _properties(self, schema: Mapping[str, Any], inner: Callable[[object], Plain]) -> Plain:
        found: Plain = {}
        if isinstance(properties := schema.get("properties"), Mapping):
            found["properties"] = {}
            for name, part in properties.items():
                if isinstance(name, str) and part is not False:
                    self._pay(len(name))
                    found["properties"][name] = inner(part)
        others = schema.get("additionalProperties")
        if schema.get("patternProperties"):  # it describes some of the others
            return found
        if others is False or (isinstance(others, Mapping) and (others := inner(others))):
            found["additionalProperties"] = others
        return found

    def _items(self, schema: Mapping[str, Any], inner: Callable[[object], Plain]) -> Plain:
        found: Plain = {}
        items = schema.get("items")
        # Drafts before 2020 wrote prefixItems as a list of items.
        if first := _list(schema.get("prefixItems")) or _list(items):
            found["prefixItems"] = [inner(item) for item in first]
        if isinstance(items, Mapping) and (every := inner(items)):
            found["items"] = every
        return found

    def _union(self, choices: object, inner: Callable[[object], Plain]) -> Plain:
        self._pay(len(_list(choices)))
        found = [inner(choice) for choice in _list(choices) if choice is not False]
        if not all(found):  # one of them accepts everything
            return {}
        return found[0] if len(found) == 1 else {"anyOf": found} if found else {}

    def _at(self, pointer: str) -> object:
        """Return the schema that a JSON pointer (RFC 6901) leads to; True if it leads nowhere."""
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

    def _pay(self, characters: int) -> None:
        self._characters_left -= characters
        if self._characters_left < 0:
            raise _TooLarge

    def _is_json(self, value: object, depth: int = 0) -> bool:
        """Pay for a value, and tell whether it is JSON that is not nested too deep."""
        self._pay(len(value) if isinstance(value, str) else 4)
        if isinstance(value, float):
            return math.isfinite(value)
        if isinstance(value, int):
            return abs(value) < _MAX_NUMBER
        if isinstance(value, Mapping):
            return all(map(_is_text, value)) and self._is_json([*value, *value.values()], depth)
        if isinstance(value, list):
            return depth < _MAX_VALUE_DEPTH and all(
                self._is_json(inner, depth + 1) for inner in value
            )
        return value is None or isinstance(value, str)


def _joined(parts: Iterable[Plain]) -> Plain:
    """Return one plain schema for values that fit all of some; of two statements the first."""
    found: Plain = {}
    properties: dict[str, Plain] = {}
    required: dict[str, None] = {}
    for part in parts:
        for key, value in part.items():
            found.setdefault(key, value)
        for name, inner in part.get("properties", {}).items():
            properties.setdefault(name, inner)
        required |= dict.fromkeys(part.get("required", ()))
    if properties:
        found["properties"] = properties
    if required:
        found["required"] = list(required)
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
