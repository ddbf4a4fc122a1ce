"""Every schema of a tool gives valid declarations."""

import json
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.declaring import anthropic, gemini

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, width=32) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYWORDS: Final = {
    *("$ref", "$defs", "definitions", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("const", "enum", "type", "format", "pattern", "description", "default", "examples"),
    *("properties", "patternProperties", "additionalProperties", "required", "nullable"),
    *("items", "prefixItems", "additionalItems", "uniqueItems", "minItems", "maxItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minProperties", "maxProperties", "title", "a", "b"),
}
KEYWORDS: Final = st.sampled_from(sorted(_KEYWORDS))
RUBBISH: Final = st.recursive(
    JSON
    | st.floats()
    | st.sampled_from(
        ["#", "#/", "#/$defs/a", "#/properties/a", "string", "object", "null", 10**400]
    ),
    lambda inner: (
        st.dictionaries(KEYWORDS, inner, max_size=5)
        | st.lists(inner, max_size=4)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["object", "array", "string", ["integer", "null"]])},
            optional={
                "properties": st.dictionaries(KEYWORDS, inner, max_size=3),
                "items": inner,
                "anyOf": st.lists(inner, max_size=3),
            },
        )
    ),
    max_leaves=25,
)


@given(st.dictionaries(KEYWORDS, RUBBISH, max_size=6) | RUBBISH)
@settings(max_examples=100, deadline=None)
def test_rubbish_becomes_a_declaration_that_every_api_takes(schema: Any) -> None:
    assert json.dumps(anthropic(schema)) == json.dumps(anthropic(schema))
    gemini(schema)
