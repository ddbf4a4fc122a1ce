"""Declarations to APIs: of real tools, odd tools and harmful ones."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from time import thread_time
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp import types

from tests.declaration_rules import check_anthropic, check_gemini
from tests.unit.declaring import acting, anthropic, gemini
from tools.base import Tool, ToolOutput, ToolSpec
from tools.catalog import open_tools
from tools.mcp.listing import usable_tools
from tools.schema import (
    Declarations,
    from_gemini_name,
    gemini_name,
    to_anthropic,
    to_gemini,
    to_openai,
)
from tools.settings import ToolsSettings, WebSearchSettings

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
RECORDED: Final = json.loads((FIXTURES / "mcp_tools.json").read_text(encoding="utf-8"))
CPU_SECONDS: Final = 2.0
"""For the worst schema; each of them takes a tenth of that on an idle machine."""


def argument(schema: Any) -> tuple[Any, Any]:
    """Return how Anthropic and Gemini are told of one argument."""
    whole = {"type": "object", "properties": {"x": schema}}
    shown = gemini(whole)["parametersJsonSchema"]
    return anthropic(whole)["properties"]["x"], shown["properties"]["x"]


def listed(server: str, tools: list[types.Tool]) -> list[Tool]:
    async def call(_: str, __: Mapping[str, Any]) -> ToolOutput:
        return ToolOutput("")

    return usable_tools(server, tools, call=call, timeout_seconds=1)


# Real tools -------------------------------------------------------------------------------------


async def test_every_built_in_tool_can_be_declared_to_every_api() -> None:
    search = WebSearchSettings(provider="duckduckgo")
    async with open_tools(ToolsSettings(web_search=search)) as registry:
        tools = registry.tools
    assert len(tools) >= 5
    for tool in tools:
        check_anthropic(to_anthropic(tool.spec))
        check_gemini(to_gemini(tool.spec))
        shown = to_gemini(tool.spec)["parametersJsonSchema"]
        assert list(shown["properties"]) == list(tool.parameters["properties"])  # type: ignore[call-overload]


@pytest.mark.parametrize("server", RECORDED)
def test_tools_of_real_mcp_servers_can_be_declared_to_every_api(server: str) -> None:
    recorded = RECORDED[server]["tools"]
    offered = listed(server, [types.Tool.model_validate(tool) for tool in recorded])
    assert len(offered) == len(recorded)
    for tool in offered:
        check_anthropic(to_anthropic(tool.spec))
        check_gemini(to_gemini(tool.spec))
    for tool in recorded:
        arguments = set(tool["inputSchema"].get("properties", {}))
        assert set(anthropic(tool["inputSchema"]).get("properties", {})) == arguments
        shown = gemini(tool["inputSchema"])["parametersJsonSchema"]
        assert set(shown.get("properties", {})) == arguments


def test_openai_gets_the_schema_itself_in_the_order_that_endpoints_have_cached() -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/x"}}, "type": "object", "$defs": {"x": True}}
    assert json.dumps(to_openai(ToolSpec("act", "Acts.", schema))) == (
        '{"type": "function", "function": {"name": "act", "description": "Acts.",'
        f' "parameters": {json.dumps(schema)}}}}}'
    )


def test_tools_are_converted_once_as_long_as_they_stay_the_same() -> None:
    declarations = Declarations(to_openai)
    tools = (acting({}, "a"), acting({}, "b"))
    first = declarations.of(tools)
    assert declarations.of(tools) is first
    assert declarations.of((*tools, acting({}, "c")))[2]["function"]["name"] == "c"


# What is mapped ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "for_anthropic", "for_gemini"),
    [
        (
            {"type": "integer", "default": 10, "description": "How many"},
            {"type": "integer", "default": 10, "description": "How many"},
            {"type": "integer", "description": "How many"},
        ),
        ({"const": "a"}, {"enum": ["a"]}, {"enum": ["a"]}),
        ({"enum": [None, "a"]}, {"enum": [None, "a"]}, {}),
        (
            {"oneOf": [{"type": "string"}, {"type": "integer"}], "description": "Id."},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Id."},
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Id."},
        ),
        (
            {"type": "string", "pattern": "^a$", "description": "Whom"},
            {"type": "string", "description": "Whom. Regular expression: ^a$"},
            {"type": "string", "description": "Whom. Regular expression: ^a$"},
        ),
        (
            {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 5}]},
            {"type": "string", "minLength": 2, "maxLength": 5},
            {"type": "string"},
        ),
        (
            {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "maxItems": 2},
            *[
                {
                    "type": "array",
                    "maxItems": 2,
                    "prefixItems": [{"type": "string"}, {"type": "integer"}],
                }
            ]
            * 2,
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "null"}, "never": False},
                "required": ["a", "a"],
            },
            *[{"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}] * 2,
        ),
        (
            {"type": "string", "anyOf": [True, {"maxLength": 3}]},
            {"type": "string"},
            {"type": "string"},
        ),
        (
            {"properties": {"a": {"type": "boolean"}}, "required": ["a", "b"]},
            {"properties": {"a": {"type": "boolean"}}, "required": ["a", "b"]},
            {"properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        ),
        (True, {}, {}),
        (
            {"type": "string", "nullable": True, "x-order": 1, "readOnly": True},
            *[{"type": ["string", "null"]}] * 2,
        ),
    ],
)
def test_a_schema_becomes_plain(schema: Any, for_anthropic: Any, for_gemini: Any) -> None:
    assert argument(schema) == (for_anthropic, for_gemini)


@pytest.mark.parametrize(
    "pointer",
    ["#/$defs/name", "#/definitions/name", "#/$defs/a~1b/properties/x%20y", "#/$defs/list/anyOf/1"],
)
def test_references_are_put_in_place(pointer: str) -> None:
    name = {"type": "string", "maxLength": 9}
    whole = {
        "type": "object",
        "properties": {"x": {"$ref": pointer, "description": "Whose."}},
        "$defs": {
            "name": name,
            "a/b": {"properties": {"x y": name}},
            "list": {"anyOf": [True, name]},
        },
        "definitions": {"name": name},
    }
    assert anthropic(whole)["properties"]["x"] == {**name, "description": "Whose."}
    shown = gemini(whole)["parametersJsonSchema"]
    assert shown["properties"]["x"] == {"type": "string", "description": "Whose."}


@pytest.mark.parametrize("pointer", ["#name", "#/$defs/none", "http://127.0.0.1:9/x", "", "##"])
def test_a_reference_to_nothing_accepts_everything(pointer: str) -> None:
    assert argument({"$ref": pointer})[0] == {}


def test_recursive_schema_is_shown_once() -> None:
    node = {
        "type": "object",
        "description": "A node.",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        },
        "required": ["name", "children"],
    }
    whole = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/node"}},
        "$defs": {"node": node},
    }
    inner = anthropic(whole)["properties"]["x"]["properties"]["children"]["items"]
    assert inner == {
        "type": "object",
        "description": "A node.",
        "required": ["name", "children"],
    }


def test_an_argument_with_a_name_that_anthropic_refuses_is_in_the_description() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "integer"}, "q": {"type": "string"}},
        "required": ["$top", "q"],
        "additionalProperties": False,
    }
    assert anthropic(schema) == {
        "type": "object",
        "properties": {"q": {"type": "string"}},
        "required": ["q"],
        "description": 'Needs "$top", as JSON Schema: {"type": "integer"}.',
    }


# Names ------------------------------------------------------------------------------------------


@given(
    server=st.from_regex(r"[a-z0-9][a-z0-9_]{0,31}", fullmatch=True),
    names=st.lists(st.text(min_size=1, max_size=100) | st.sampled_from(["a.b", "a/b", "_1", "-"])),
)
@example(server="1password", names=["n" * 54, "n" * 55, "n" * 100])
@settings(max_examples=50, deadline=None)
def test_the_names_of_mcp_tools_are_taken_by_every_api_and_found_again(
    server: str, names: list[str]
) -> None:
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    offered = listed(server, tools)
    for tool in offered:
        check_anthropic(to_anthropic(tool.spec))
        check_gemini(to_gemini(tool.spec))
        assert from_gemini_name(to_gemini(tool.spec)["name"]) == tool.name
    assert len({gemini_name(tool.name) for tool in offered}) == len(offered)


# Schemas that were made to do harm --------------------------------------------------------------


def bomb(levels: int) -> dict[str, Any]:
    """Return a schema that is twice as large with each level, once references are in place."""
    defs: dict[str, Any] = {
        f"d{level}": {
            "type": "object",
            "properties": {
                "left": {"$ref": f"#/$defs/d{level + 1}"},
                "right": {"$ref": f"#/$defs/d{level + 1}"},
            },
        }
        for level in range(levels)
    }
    defs[f"d{levels}"] = {"type": "string", "description": "d" * 100}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}, "allOf": [schema]}
    return schema


def chain(links: int) -> dict[str, Any]:
    defs = {f"d{link}": {"$ref": f"#/$defs/d{link + 1}"} for link in range(links)}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs}


def tied() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"x": schema, "y": {"anyOf": [schema, schema]}}
    schema["default"] = {"x": [schema]}
    return schema


HARMFUL: Final[Mapping[str, Any]] = {
    "a bomb of references": bomb(40),
    "a tree that is itself everywhere": {
        "type": "object",
        "properties": {name: {"$ref": "#"} for name in "abcdefghij"},
        "anyOf": [{"$ref": "#"}] * 10,
        "allOf": [{"$ref": "#"}] * 10,
    },
    "a circle": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "a chain": chain(10_000),
    "depth": deep(400),
    "an object that contains itself": tied(),
    "a megabyte of description": {"type": "object", "description": "d" * 1_000_000},
    "a megabyte of properties": {
        "type": "object",
        "properties": {f"p{number}": {"type": "string"} for number in range(30_000)},
    },
    "a megabyte of choices": {
        "type": "object",
        "properties": {"x": {"enum": [str(number) for number in range(100_000)]}},
    },
    "many parts": {
        "type": "object",
        "allOf": [{"properties": {f"p{number}": {}}} for number in range(2_500)],
    },
    "choices of types": {
        "type": "object",
        "properties": {
            "x": {"anyOf": [{"type": ["array", "string"], "minimum": n} for n in range(2_500)]}
        },
    },
    "much of nothing, often": {
        "type": "object",
        "properties": {f"p{number}": {"$ref": "#/$defs/x"} for number in range(900)},
        "$defs": {
            "x": {"anyOf": [False] * 100_000, "const": 1} | {f"u{n}": 0 for n in range(50_000)}
        },
    },
    "a default that is nested": {"type": "object", "default": json.loads("[" * 900 + "]" * 900)},
    "an expression that takes long": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "(?i)" + "[\0-\U0010ffff]" * 40}},
    },
    "no number": {
        "type": "object",
        "properties": {"x": {"default": math.nan, "minimum": -math.inf, "enum": [math.nan]}},
    },
    "a large number": {"type": "object", "properties": {"x": {"minimum": 10**4000}}},
}


@pytest.mark.parametrize("kind", HARMFUL)
def test_a_schema_that_was_made_to_do_harm_takes_bounded_time_and_space(kind: str) -> None:
    begun = thread_time()
    declared = to_anthropic(acting(HARMFUL[kind])), to_gemini(acting(HARMFUL[kind]))
    assert thread_time() - begun < CPU_SECONDS
    check_anthropic(declared[0])
    check_gemini(declared[1])
