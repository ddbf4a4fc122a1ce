"""What each API is told of a tool.

OpenAI takes JSON Schema as it is. Anthropic takes JSON Schema, without references, unions at the
top and unusual names of arguments. Gemini takes the few keywords of `tools.schema.gemini`. What is
left out makes a schema wider, never narrower; a tool checks its arguments against its own schema,
so it only costs the model a second try.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from tools.schema.gemini import parameters_of
from tools.schema.names import gemini_name
from tools.schema.plain import Plain, plain
from tools.schema.words import property_words, with_words

_ANTHROPIC_ARGUMENT: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_AT_THE_TOP: Final = frozenset({"anyOf", "enum", "items", "prefixItems"})


class Described(Protocol):
    """A tool as a model is told of it: `tools.base.Tool`, or the bot's own record of one."""

    @property
    def name(self) -> str:
        """`[a-zA-Z0-9_-]{1,64}`."""
        ...

    @property
    def description(self) -> str:
        """What it does."""
        ...

    @property
    def parameters(self) -> Mapping[str, object]:
        """The JSON Schema of its arguments."""
        ...


class Declarations:
    """Tools as one API is told of them, converted once as long as they stay the same.

    Args:
        declare: converts one of them.
    """

    def __init__(self, declare: Callable[[Described], dict[str, Any]]) -> None:
        self._declare = declare
        self._tools: Sequence[Described] = ()
        self._declared: tuple[dict[str, Any], ...] = ()

    def of(self, tools: Sequence[Described]) -> tuple[dict[str, Any], ...]:
        """Return a declaration for each tool; the same objects for the same sequence."""
        if tools is not self._tools:
            self._declared = tuple(map(self._declare, tools))
            self._tools = tools
        return self._declared


def to_openai(tool: Described) -> dict[str, Any]:
    """Return an entry of `tools` of OpenAI's chat completions; its schema is not changed."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


def to_anthropic(tool: Described) -> dict[str, Any]:
    """Return an entry of `tools` of Anthropic's Messages API.

    A schema that describes no object becomes one that takes any object.
    """
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": _for_anthropic(_object(tool)),
    }


def to_gemini(tool: Described) -> dict[str, Any]:
    """Return an entry of Gemini's `functionDeclarations`.

    It has no `parameters` where there are no arguments, or none that Gemini can be told of except
    in the words of the description.
    """
    parameters, words = parameters_of(_object(tool))
    described = with_words({"description": tool.description}, words)
    declared = {"name": gemini_name(tool.name), **described}
    return declared if parameters is None else {**declared, "parameters": parameters}


def _object(tool: Described) -> Plain:
    """Return the plain schema of the arguments, which are always an object."""
    found = plain(tool.parameters)
    types = found.get("type", "object")
    if "object" not in types:
        return {"type": "object"}
    return {"type": "object"} | {
        key: value for key, value in found.items() if key not in {*_NOT_AT_THE_TOP, "type"}
    }


def _for_anthropic(schema: Plain) -> Plain:
    """Return a plain schema without the names of arguments that are refused."""
    found, words = dict(schema), []
    if "properties" in found:
        required = found.get("required", ())
        shown = {}
        for name, inner in found["properties"].items():
            if _ANTHROPIC_ARGUMENT.fullmatch(name):
                shown[name] = _for_anthropic(inner)
            else:
                words.append(property_words(name, inner, required=name in required))
        found["properties"] = shown
        if words:
            found.pop("additionalProperties", None)  # they are among the others now
            found["required"] = [name for name in required if name in shown]
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _for_anthropic(found[key])
    for key in ("anyOf", "prefixItems"):
        if key in found:
            found[key] = [_for_anthropic(inner) for inner in found[key]]
    return with_words(found, words)
