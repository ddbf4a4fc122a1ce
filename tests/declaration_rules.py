"""What Anthropic and Gemini accept as the declaration of a tool, from their documents and refusals.

Written without a look at `tools.schema`, so that its output can be held against it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator

MAX_DECLARATION_CHARACTERS: Final = 500_000
_TYPES: Final = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}
_EVERYWHERE: Final = {"type", "title", "description", "nullable"}
_OF_TYPE: Final[Mapping[str, set[str]]] = {
    "STRING": {"format", "enum", "minLength", "maxLength", "pattern"},
    "NUMBER": {"format", "minimum", "maximum"},
    "INTEGER": {"format", "minimum", "maximum"},
    "BOOLEAN": set(),
    "ARRAY": {"items", "minItems", "maxItems"},
    "OBJECT": {"properties", "required", "propertyOrdering", "minProperties", "maxProperties"},
}
_FORMATS: Final[Mapping[str, set[str]]] = {
    "STRING": {"date-time"},
    "NUMBER": {"float", "double"},
    "INTEGER": {"int32", "int64"},
}
_COUNTS: Final = {
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
}
SAID_IN_WORDS: Final = ("Any JSON value.", "Or, as JSON Schema: ")
"""What a description says where a schema accepts more than it can show."""


def check_anthropic(declaration: Mapping[str, Any]) -> None:
    """Assert that Anthropic's Messages API takes it among its `tools`."""
    assert set(declaration) == {"name", "description", "input_schema"}
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", declaration["name"])
    assert isinstance(declaration["description"], str)
    schema = declaration["input_schema"]
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf"} & set(schema), "at the top level"
    Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for inner in _schemas(schema):
        assert not {"$ref", "$defs", "definitions", "patternProperties"} & set(inner)
        for name in inner.get("properties", {}):
            assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name)
    assert len(json.dumps(declaration, allow_nan=False)) < MAX_DECLARATION_CHARACTERS


def _schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for key in ("items", "additionalProperties"):
            yield from _schemas(schema.get(key))
        for inner in schema.get("properties", {}).values():
            yield from _schemas(inner)
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for inner in schema.get(key, ()):
                yield from _schemas(inner)


def check_gemini(declaration: Mapping[str, Any]) -> None:
    """Assert that Gemini takes it among its `functionDeclarations`."""
    assert {"name", "description"} <= set(declaration) <= {"name", "description", "parameters"}
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", declaration["name"])
    assert isinstance(declaration["description"], str)
    if "parameters" in declaration:
        assert declaration["parameters"]["type"] == "OBJECT"
        _check_schema(declaration["parameters"], levels=4)
    assert len(json.dumps(declaration, allow_nan=False)) < MAX_DECLARATION_CHARACTERS


def _check_schema(schema: Mapping[str, Any], levels: int) -> None:
    if "anyOf" in schema:
        assert set(schema) == {"anyOf"}, "it must be the only field set"
        assert len(schema["anyOf"]) > 1
        for choice in schema["anyOf"]:
            _check_schema(choice, levels)
        return
    kind = schema["type"]
    assert kind in _TYPES
    assert set(schema) <= _EVERYWHERE | _OF_TYPE[kind]
    _check_fields(kind, schema)
    if kind == "ARRAY":
        assert levels, "nested too deep"
        _check_schema(schema["items"], levels - 1)
    if kind == "OBJECT":
        assert levels, "nested too deep"
        assert schema["properties"], "should be non-empty for OBJECT type"
        assert set(schema.get("required", ())) <= set(schema["properties"]), "not defined"
        for inner in schema["properties"].values():
            _check_schema(inner, levels - 1)


def _check_fields(kind: str, schema: Mapping[str, Any]) -> None:
    for key in _COUNTS & set(schema):
        assert type(schema[key]) is int
        assert 0 <= schema[key] < 2**63
    for key in {"minimum", "maximum"} & set(schema):
        assert type(schema[key]) in {int, float}
        assert abs(float(schema[key])) < float("inf")
    if "format" in schema:
        assert schema["format"] in _FORMATS[kind]
    if "enum" in schema:
        assert schema["enum"]
        assert all(isinstance(value, str) and value for value in schema["enum"])
    if "nullable" in schema:
        assert schema["nullable"] is True
    if "pattern" in schema:
        re.compile(schema["pattern"])


def meaning(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a Gemini schema, as its API and the descriptions are to be read."""
    first, *_ = schema.get("anyOf", [schema])
    if any(words in first.get("description", "") for words in SAID_IN_WORDS):
        return {}
    if "anyOf" in schema:
        return {"anyOf": [meaning(choice) for choice in schema["anyOf"]]}
    kind = schema["type"].lower()
    found = {
        key: value
        for key, value in schema.items()
        if key not in {"type", "nullable", "description", "format", "items", "properties"}
    }
    found["type"] = kind
    if "items" in schema:
        found["items"] = meaning(schema["items"])
    if "properties" in schema:
        found["properties"] = {k: meaning(v) for k, v in schema["properties"].items()}
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") else found
