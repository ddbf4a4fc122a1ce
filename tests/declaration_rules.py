"""Rules of Anthropic and Gemini for declarations of tools, from their documents and refusals.

Independent of `tools.schema`, whose output tests compare with these rules.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator

MAX_DECLARATION_CHARACTERS: Final = 500_000
_GEMINI_KEYWORDS: Final = {
    *("type", "format", "title", "description", "enum", "items", "prefixItems", "minItems"),
    *("maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties"),
    *("required", "propertyOrdering"),
}


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
    assert set(declaration) == {"name", "description", "parametersJsonSchema"}
    assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", declaration["name"])
    assert isinstance(declaration["description"], str)
    schema = declaration["parametersJsonSchema"]
    assert schema["type"] == "object"
    Draft202012Validator.check_schema(schema)
    for inner in _schemas(schema):
        assert set(inner) <= _GEMINI_KEYWORDS
        assert all(type(value) in {str, int, float} for value in inner.get("enum", ()))
        assert set(inner.get("required", ())) <= set(inner.get("properties", ())), "not defined"
    assert len(json.dumps(declaration, allow_nan=False)) < MAX_DECLARATION_CHARACTERS
