"""Whatever a tool's schema is: its declarations are valid, and never narrower than the tool."""

import json
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.unit.declaring import anthropic, gemini

NAMES: Final = st.sampled_from(["a", "b", "type", "properties", "$ref", "x y", "", "é", "n" * 65])
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, width=32) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
WORDS: Final = st.fixed_dictionaries(
    {},
    optional={
        "description": st.text(max_size=8),
        "default": JSON,
        "title": st.text(max_size=4),
        "examples": st.lists(JSON, max_size=1),
        "not": st.just(False),
        "$comment": st.just("none"),
    },
)


@st.composite
def schemas_with_values(draw: st.DrawFn, defs: dict[str, Any], depth: int) -> tuple[Any, Any]:
    """Draw a schema and a value that was made for it."""
    kinds = ["string", "number", "constant", "anything"]
    if depth:
        kinds += ["array", "tuple", "object", "object", "union", "types", "both", "reference"]
    schema, value = draw(_OF_KIND[draw(st.sampled_from(kinds))](defs, depth - 1))
    return (schema | draw(WORDS) if isinstance(schema, dict) else schema), value


@st.composite
def strings(draw: st.DrawFn, _: Any, __: int) -> tuple[Any, Any]:
    value = draw(st.text(max_size=6))
    schema: dict[str, Any] = {"type": "string"}
    schema |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "minLength": st.integers(0, len(value)),
                "maxLength": st.integers(len(value), 2**70),
                "format": st.sampled_from(["email", "date-time", "uri", "enum"]),
                "pattern": st.sampled_from(["", "(?s).*", "(?=)", r"^[\s\S]*$"]),
                "enum": st.lists(JSON, max_size=3).map(lambda more: [*more, value]),
            },
        )
    )
    return schema, value


@st.composite
def numbers(draw: st.DrawFn, _: Any, __: int) -> tuple[Any, Any]:
    value = draw(st.integers(-(2**60), 2**60) | st.floats(-1e300, 1e300))
    schema: dict[str, Any] = {"type": "integer" if isinstance(value, int) else "number"}
    below, above = st.integers(1, 9) | st.just(0.5), st.integers(1, 9) | st.just(0.5)
    schema |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "minimum": below.map(lambda far: value - far),
                "exclusiveMinimum": below.map(lambda far: value - far),
                "maximum": above.map(lambda far: value + far),
                "exclusiveMaximum": above.map(lambda far: value + far),
                "format": st.sampled_from(["int32", "double", "date"]),
                "enum": st.just([value]),
                "multipleOf": st.just(1),
            },
        )
    )
    return schema, value


@st.composite
def constants(draw: st.DrawFn, _: Any, __: int) -> tuple[Any, Any]:
    value = draw(JSON)
    enum = {"enum": [value, *draw(st.lists(JSON, max_size=2))]}
    return draw(st.sampled_from([{"const": value}, enum])), value


@st.composite
def anything(draw: st.DrawFn, _: Any, __: int) -> tuple[Any, Any]:
    return draw(st.sampled_from([True, {}, {"title": "T"}])), draw(JSON)


@st.composite
def arrays(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    pairs = draw(st.lists(schemas_with_values(defs, depth), max_size=2))
    schema: dict[str, Any] = {"type": "array"}
    if pairs:
        schema["items"] = {"anyOf": [each for each, _ in pairs]}
    values = [value for _, value in pairs]
    schema |= draw(st.sampled_from([{}, {"minItems": len(values)}, {"maxItems": len(values)}]))
    return schema, values


@st.composite
def tuples(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    pairs = draw(st.lists(schemas_with_values(defs, depth), min_size=1, max_size=3))
    schema: dict[str, Any] = {"type": "array", "prefixItems": [each for each, _ in pairs]}
    values = [value for _, value in pairs]
    if draw(st.booleans()):
        schema["items"], more = draw(schemas_with_values(defs, depth))
        return schema, [*values, more]
    return schema | draw(st.sampled_from([{}, {"items": False, "maxItems": len(values)}])), values


@st.composite
def objects(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    pairs = draw(st.dictionaries(NAMES, schemas_with_values(defs, depth), max_size=3))
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {name: each for name, (each, _) in pairs.items()}
    given = draw(st.sets(st.sampled_from(sorted(pairs)))) if pairs else set()
    values = {name: value for name, (_, value) in pairs.items() if name in given}
    schema["required"] = sorted(given) if draw(st.booleans()) else []
    match draw(st.sampled_from(["open", "closed", "others", "patterns"])):
        case "closed":
            schema["additionalProperties"] = False
        case "others":
            schema["additionalProperties"], values["other"] = draw(schemas_with_values(defs, depth))
        case "patterns":
            schema |= {"additionalProperties": False, "patternProperties": {"^o": True}}
            values["other"] = draw(JSON)
    return schema, values


@st.composite
def unions(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    pairs = draw(st.lists(schemas_with_values(defs, depth), min_size=1, max_size=3))
    key = draw(st.sampled_from(["anyOf", "oneOf"]))
    choices = [each for each, _ in pairs] + draw(st.sampled_from([[], [{"type": "null"}], [False]]))
    values = [value for _, value in pairs] + [None] * ({"type": "null"} in choices)
    return {key: choices}, draw(st.sampled_from(values))


@st.composite
def several_types(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    schema, value = draw(schemas_with_values(defs, depth))
    if isinstance(schema, bool) or not isinstance(schema.get("type"), str):
        return schema, value
    more = draw(st.sets(st.sampled_from(["string", "null", "integer", "object", "array"])))
    return {**schema, "type": sorted({schema["type"], *more})}, value


@st.composite
def conjunctions(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    one, value = draw(objects(defs, depth))
    other, more = draw(objects(defs, depth))
    more_parts: list[list[Any]] = [[], [{"description": "Both."}], [True]]
    parts = [one, other, *draw(st.sampled_from(more_parts))]
    joined = {**value, **more}
    return draw(st.sampled_from([{"allOf": parts}, {**one, "allOf": parts[1:]}])), joined


@st.composite
def references(draw: st.DrawFn, defs: Any, depth: int) -> tuple[Any, Any]:
    schema, value = draw(schemas_with_values(defs, depth))
    name = f"d/{len(defs)}"
    defs[name] = schema
    return {"$ref": f"#/$defs/{name.replace('/', '~1')}"}, value


_OF_KIND: Final = {
    "string": strings,
    "number": numbers,
    "constant": constants,
    "anything": anything,
    "array": arrays,
    "tuple": tuples,
    "object": objects,
    "union": unions,
    "types": several_types,
    "both": conjunctions,
    "reference": references,
}


@st.composite
def tools_with_arguments(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    defs: dict[str, Any] = {}
    schema, values = draw(objects(defs, 5))
    return {**schema, "$defs": defs}, values


@given(tools_with_arguments())
@settings(max_examples=60, deadline=None)
def test_declared_schema_accepts_all_arguments_of_the_tool(
    drawn: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    schema, values = drawn
    for_anthropic = anthropic(schema)
    for_gemini = gemini(schema)["parametersJsonSchema"]
    if not Draft202012Validator(schema).is_valid(values):  # of `oneOf`, two may fit
        return
    assert Draft202012Validator(for_anthropic).is_valid(values)
    assert Draft202012Validator(for_gemini).is_valid(values)


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
@settings(max_examples=200, deadline=None)
def test_rubbish_becomes_a_declaration_that_every_api_takes(schema: Any) -> None:
    assert json.dumps(anthropic(schema)) == json.dumps(anthropic(schema))
    gemini(schema)
