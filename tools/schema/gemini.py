"""The Schema of Gemini's API, which is a part of OpenAPI's.

It has no references, no `oneOf`, `allOf`, `const`, `default` or `additionalProperties`, one type at
a time, enumerations of non-empty strings alone, an `anyOf` that stands alone, a format only for
dates with time and for the size of numbers. Arrays have items, objects have properties, and there
is no schema for "anything". So

- null among the types becomes `nullable`, several types become `anyOf`;
- bounds, formats and enumerations that it lacks are said in the description;
- a property that is an object without known properties, or nested too deep, is left out, and the
  description of what it is in says its JSON Schema; so it is with one of several choices;
- anything becomes a text, a number or a boolean, and the description says "Any JSON value".

Reference: https://ai.google.dev/api/caching#Schema; what it leaves open is known from refusals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, Final

from tools.schema.plain import Plain, joined
from tools.schema.words import compact, property_words, schema_words, value_words, with_words

MAX_LEVELS: Final = 4
"""Of objects and arrays in each other. No bound is documented; refusals beyond it are known."""
_ANNOTATIONS: Final = ("description", "default", "examples")
_ANYTHING: Final = ({"type": "STRING"}, {"type": "NUMBER"}, {"type": "BOOLEAN"})
_MAX_COUNT: Final = 2**63 - 1
_EXACT: Final = 2**53  # beyond it, one more or less is lost in a double
_NUMBER_FORMATS: Final = {"integer": ("int32", "int64"), "number": ("float", "double")}

_Parts = tuple[Plain, Sequence[str]]
"""Fields of a schema, and sentences about what they do not say."""


def parameters_of(schema: Plain) -> tuple[Plain | None, Sequence[str]]:
    """Return the parameters of a function, None where none can be described, and sentences."""
    found = _object(schema, MAX_LEVELS)
    if found is None:
        return None, _left_out_words(schema, {})
    fields, words = found
    return with_words({"type": "OBJECT"} | _description(schema) | fields, words), ()


def _schema(schema: Mapping[str, Any], levels: int) -> Plain | None:
    """Return a schema of Gemini's, None where it has none for that."""
    bare = {key: schema[key] for key in schema if key not in {"anyOf", *_ANNOTATIONS}}
    words = [
        value_words(key.title(), value)
        for key in ("default", "examples")
        if (value := schema.get(key)) is not None
    ]
    if "anyOf" in schema:
        if bare.keys() <= {"type"}:
            choices = [joined(choice, bare) for choice in schema["anyOf"]]
            return _union(choices, schema, words, levels)
        words.append(value_words("Must also fit", {"anyOf": schema["anyOf"]}))
    match _types(schema):
        case []:
            return _alone(_ANYTHING, schema, [*words, "Any JSON value."])
        case [kind] if kind != "null":
            found = _of_type(kind, bare, levels)
            return None if found is None else _alone([found], schema, words)
        case kinds:
            return _union([{**bare, "type": kind} for kind in kinds], schema, words, levels)


def _union(
    choices: Sequence[Plain], schema: Mapping[str, Any], words: Sequence[str], levels: int
) -> Plain | None:
    """Return what fits one of some schemas; those that cannot be described are said in words."""
    nullable = False
    shown: dict[str, Plain] = {}
    others: list[str] = []
    for choice in choices:
        if _types(choice) == ["null"]:
            nullable = True
        elif (found := _schema(choice, levels)) is None:
            others.append(schema_words("Or", choice))
        else:
            shown |= {compact(each): each for each in found.get("anyOf", [found])}
    if not shown and others:
        return None
    described = list(shown.values())
    if nullable:
        described = [{**each, "nullable": True} for each in described or [{"type": "STRING"}]]
    return _alone(described, schema, [*words, *others])


def _alone(choices: Sequence[Plain], schema: Mapping[str, Any], words: Sequence[str]) -> Plain:
    """Return one schema for some; what is said of all of them is said at the first."""
    first = {key: value for key, value in choices[0].items() if key != "description"}
    own = choices[0].get("description")
    told = with_words(_description(schema), [*words, *([own] if own else [])])
    first = {"type": first.pop("type"), **told, **first}
    return first if len(choices) == 1 else {"anyOf": [first, *choices[1:]]}


def _description(schema: Mapping[str, Any]) -> Plain:
    return {key: schema[key] for key in ("description",) if key in schema}


def _types(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a value may have; none if any.

    Whoever describes properties or items without naming a type means an object or an array.
    """
    named = schema.get("type", [])
    types = [named] if isinstance(named, str) else list(named)
    if "enum" in schema:
        values = schema["enum"]
        types = [kind for kind in types or _VALUES if any(_is_of(kind, v) for v in values)] or types
    elif not types and "properties" in schema:
        types = ["object"]
    elif not types and ("items" in schema or "prefixItems" in schema):
        types = ["array"]
    return [kind for kind in types if not (kind == "integer" and "number" in types)]


def _is_of(kind: str, value: object) -> bool:
    if kind in {"integer", "number"} and isinstance(value, bool):
        return False
    return isinstance(value, _VALUES[kind])


_VALUES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "number": (int, float),
    "integer": (int, float),
    "boolean": bool,
    "array": list,
    "object": Mapping,
    "null": NoneType,
}


def _of_type(kind: str, schema: Mapping[str, Any], levels: int) -> Plain | None:
    found = _OF_TYPE[kind](schema, levels)
    if found is None:
        return None
    fields, words = found
    return with_words({"type": kind.upper(), **fields}, words)


def _string(schema: Mapping[str, Any], _: int) -> _Parts:
    words = []
    fields = _counts(schema, "minLength", "maxLength")
    if "enum" in schema:
        texts = [value for value in schema["enum"] if isinstance(value, str)]
        if all(texts):
            fields |= {"enum": list(dict.fromkeys(texts))} if texts else {}
        else:
            words.append(value_words("One of", texts))
    if (format_ := schema.get("format")) == "date-time":
        fields["format"] = format_
    elif format_ is not None:
        words.append(value_words("Format", format_))
    if "pattern" in schema:
        fields["pattern"] = schema["pattern"]
    return fields, words


def _number(kind: str, schema: Mapping[str, Any]) -> _Parts:
    words = [
        value_words(label, schema[key])
        for key, label in (("enum", "One of"), ("multipleOf", "A multiple of"))
        if key in schema
    ]
    lowest = [schema["minimum"]] if "minimum" in schema else []
    highest = [schema["maximum"]] if "maximum" in schema else []
    if (bound := schema.get("exclusiveMinimum")) is not None:
        exact = kind == "integer" and abs(bound) < _EXACT
        lowest.append(math.floor(bound) + 1 if exact else bound)
        words += [] if exact else [value_words("More than", bound)]
    if (bound := schema.get("exclusiveMaximum")) is not None:
        exact = kind == "integer" and abs(bound) < _EXACT
        highest.append(math.ceil(bound) - 1 if exact else bound)
        words += [] if exact else [value_words("Less than", bound)]
    fields: Plain = {}
    if schema.get("format") in _NUMBER_FORMATS[kind]:
        fields["format"] = schema["format"]
    if lowest:
        fields["minimum"] = max(lowest)
    if highest:
        fields["maximum"] = min(highest)
    return fields, words


def _boolean(schema: Mapping[str, Any], _: int) -> _Parts:
    return {}, [value_words("Always", schema["enum"][0])] if len(
        schema.get("enum", ())
    ) == 1 else []


def _array(schema: Mapping[str, Any], levels: int) -> _Parts | None:
    """Return an array; of items that differ by their place, each may be at every place."""
    first = schema.get("prefixItems", [])
    kinds = [*first, schema.get("items", {})]
    if first and schema.get("maxItems", len(first) + 1) <= len(first):
        kinds = first
    items = _union(kinds, {}, (), levels - 1) if levels else None
    if items is None:
        return None
    words = ["No item twice."] if schema.get("uniqueItems") else []
    if first:
        words.append(value_words("The items in their order", first))
    return _counts(schema, "minItems", "maxItems") | {"items": items}, words


def _object(schema: Mapping[str, Any], levels: int) -> _Parts | None:
    if not levels:
        return None
    properties = {
        name: described
        for name, inner in schema.get("properties", {}).items()
        if (described := _schema(inner, levels - 1)) is not None
    }
    if not properties:
        return None
    fields: Plain = {"properties": properties}
    if required := [name for name in schema.get("required", ()) if name in properties]:
        fields["required"] = required
    fields |= _counts(schema, "minProperties", "maxProperties")
    return fields, _left_out_words(schema, properties)


def _left_out_words(schema: Mapping[str, Any], shown: Mapping[str, Any]) -> Sequence[str]:
    """Say which properties are not shown, and what further ones are."""
    required = schema.get("required", ())
    words = [
        property_words(name, inner, required=name in required)
        for name, inner in schema.get("properties", {}).items()
        if name not in shown
    ]
    if isinstance(others := schema.get("additionalProperties"), Mapping):
        words.append(schema_words("Other properties", others))
    return words


def _counts(schema: Mapping[str, Any], *keys: str) -> Plain:
    return {key: schema[key] for key in keys if schema.get(key, _MAX_COUNT + 1) <= _MAX_COUNT}


_OF_TYPE: Final[Mapping[str, Callable[[Mapping[str, Any], int], _Parts | None]]] = {
    "string": _string,
    "number": lambda schema, _: _number("number", schema),
    "integer": lambda schema, _: _number("integer", schema),
    "boolean": _boolean,
    "array": _array,
    "object": _object,
}
