"""Declare tools to the APIs of models; the parameters of tools are plain schemas already."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from tools.base import ToolSpec
from tools.schema.plain import MAX_WORDS, Plain, inside, only_keywords, with_words

_ANTHROPIC_ARGUMENT: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_GEMINI_KEYWORDS: Final = frozenset(
    {
        "type", "format", "description", "enum", "items", "prefixItems", "minItems", "maxItems",
        "minimum", "maximum", "anyOf", "properties", "additionalProperties", "required",
    }
)  # fmt: skip
"""Source: https://ai.google.dev/api/caching#FunctionDeclaration, `parametersJsonSchema`."""


class Declarations:
    """Declarations of tools to one API, made once as long as the tools stay the same."""

    def __init__(self, declare: Callable[[ToolSpec], dict[str, Any]]) -> None:
        self._declare = declare
        self._tools: Sequence[ToolSpec] = ()
        self._declared: tuple[dict[str, Any], ...] = ()

    def of(self, tools: Sequence[ToolSpec]) -> tuple[dict[str, Any], ...]:
        """Return a declaration for each tool; the same objects for the same sequence."""
        if tools is not self._tools:
            self._declared = tuple(map(self._declare, tools))
            self._tools = tools
        return self._declared


def to_openai(tool: ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools` of OpenAI's chat completions, with the schema unchanged."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def to_anthropic(tool: ToolSpec) -> dict[str, Any]:
    """Return an entry of `tools` of Anthropic's Messages API."""
    schema = _with_short_names(dict(tool.parameters))
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def to_gemini(tool: ToolSpec) -> dict[str, Any]:
    """Return an entry of Gemini's `functionDeclarations`."""
    schema = _for_gemini(dict(tool.parameters))
    return {
        "name": gemini_name(tool.name),
        "description": tool.description,
        "parametersJsonSchema": schema,
    }


def gemini_name(name: str) -> str:
    """Return a tool's name for Gemini, which wants a letter or an underscore at the beginning."""
    return f"_{name}" if re.match("[0-9-]", name) else name


def from_gemini_name(name: str) -> str:
    """Return the tool's own name; no name begins with an underscore and a digit or hyphen."""
    return name[1:] if re.match("_[0-9-]", name) else name


def _with_short_names(schema: Plain) -> Plain:
    """Say arguments whose names Anthropic refuses in the words of the description."""
    found = inside(schema, _with_short_names)
    properties = found.get("properties", {})
    refused = [name for name in properties if not _ANTHROPIC_ARGUMENT.fullmatch(name)]
    if not refused:
        return found
    found.pop("additionalProperties", None)  # the refused ones are among the others now
    required = found.get("required", [])
    found["properties"] = {k: v for k, v in properties.items() if k not in refused}
    found["required"] = [name for name in required if name not in refused]
    words = (
        f"{'Needs' if name in required else 'May have'} {json.dumps(name, ensure_ascii=False)}, "
        f"as JSON Schema: {json.dumps(properties[name], ensure_ascii=False)[:MAX_WORDS]}."
        for name in refused
    )
    return with_words(found, words)


def _for_gemini(schema: Plain) -> Plain:
    """Return a plain schema with the keywords that Gemini knows."""
    found = only_keywords(inside(schema, _for_gemini), _GEMINI_KEYWORDS)
    if any(type(value) not in {str, int, float} for value in found.get("enum", ())):
        del found["enum"]
    if "required" in found:
        known = found.get("properties", {})
        found["required"] = [name for name in found["required"] if name in known]
    return found
