"""Conversion of a server's list of tools to ours: names, descriptions, plain schemas."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

from mcp import types

from tools.base import InvalidArguments, Tool, ToolOutput
from tools.display import visible
from tools.schema import Plain, parameters_of, parse_object, plain

MAX_TOOLS: Final = 64
"""From one server; the model reads all of them with every request."""
_MAX_NAME_CHARACTERS: Final = 63  # the strictest API takes 64, and Gemini may need one more
_MAX_DESCRIPTION_CHARACTERS: Final = 1024
_MAX_LIST_CHARACTERS: Final = 500
_HASH_CHARACTERS: Final = 8
_WHOLE: Final = re.compile(r"-?[0-9]{1,15}")
_MAX_PROBLEMS: Final = 5
_MAX_CHOICES_CHARACTERS: Final = 500
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int, float),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}

Call = Callable[[str, dict[str, Any]], Awaitable[ToolOutput]]
"""Calls a tool by the name that its server gave it."""


def usable_tools(
    server: str,
    listed: Sequence[types.Tool],
    *,
    call: Call,
    timeout_seconds: float,
    chosen: Collection[str] = (),
) -> list[Tool]:
    """Return the tools of a list that can be offered.

    Args:
        listed: as the server sent it; a tool that broke the protocol has no name.
        timeout_seconds: for one call.
        chosen: the operator's choice, by the server's names or by ours; all if empty.
    """
    tools: dict[str, Tool] = {}
    for name, tool in zip(_names(server, listed), listed, strict=True):
        if len(tools) == MAX_TOOLS:
            break
        if chosen and tool.name not in chosen and name not in chosen:
            continue
        schema = plain(tool.input_schema)
        if tool.name and schema is not None and name not in tools:
            tools[name] = _tool(name, tool, schema, call, timeout_seconds)
    return list(tools.values())


def remark(
    server: str, chosen: Collection[str], listed: Sequence[types.Tool], tools: Sequence[Tool]
) -> str:
    """Return a sentence about wanted tools that are not offered, or an empty text."""
    names = _names(server, listed)
    setting = f"MCP__SERVERS__{server.upper()}__TOOLS"
    known = {*names, *(tool.name for tool in listed)}
    if unknown := sorted({*chosen} - known):
        has = visible(", ".join(tool.name for tool in listed)) or "none"
        if len(has) > _MAX_LIST_CHARACTERS:
            has = f"{has[: _MAX_LIST_CHARACTERS - 1]}…"
        return f"It has no tool {', '.join(unknown)}; it has {has}. See {setting}."
    wanted = len(chosen) or len(listed)
    if wanted <= len(tools):
        return ""
    if len(tools) == MAX_TOOLS:
        return f"{MAX_TOOLS} tools of a server are used at most: choose them by {setting}."
    return (
        f"{wanted - len(tools)} more are left out: another tool has the name, or the description"
        " is wrong or too long."
    )


def _tool(name: str, tool: types.Tool, schema: Plain, call: Call, timeout_seconds: float) -> Tool:
    annotations = tool.annotations or types.ToolAnnotations()
    parameters = parameters_of(schema)
    return Tool(
        name=name,
        description=_description(tool),
        parameters=parameters,
        parse=partial(parsed, parameters),
        run=lambda arguments, _: call(tool.name, arguments),
        side_effects=annotations.read_only_hint is not True,
        untrusted=True,
        timeout_seconds=timeout_seconds,
    )


def parsed(parameters: Plain, text: str) -> dict[str, Any]:
    """Parse a model's arguments; InvalidArguments says at once which of them do not fit.

    Only the arguments themselves are looked at. The server checks what is inside them.
    """
    arguments, properties = parse_object(text), parameters["properties"]
    required = parameters.get("required", ())
    for name in [name for name, value in arguments.items() if value is None]:
        if name not in required and _refuses_null(properties.get(name, {})):
            del arguments[name]  # null for an optional argument
    problems = [f"lacks {name}" for name in required if name not in arguments]
    for name in arguments.keys() & properties.keys():
        arguments[name] = _repaired(arguments[name], properties[name])
        problems += _problem(name, arguments[name], properties[name])
    if (
        parameters.get("additionalProperties") is False
        and not arguments.keys() <= properties.keys()
    ):
        known = ", ".join(properties)[:_MAX_CHOICES_CHARACTERS]
        problems.append(f"may only have {known or 'nothing'}")
    if problems:
        raise InvalidArguments("; ".join(problems[:_MAX_PROBLEMS]))
    return arguments


def _kinds(schema: Plain) -> Sequence[str]:
    wanted = schema.get("type", ())
    return [wanted] if isinstance(wanted, str) else wanted


def _refuses_null(schema: Plain) -> bool:
    kinds, choices = _kinds(schema), schema.get("enum")
    return (bool(kinds) and "null" not in kinds) or (choices is not None and None not in choices)


def _repaired(value: object, schema: Plain) -> object:
    """Return a number that a model has sent as text."""
    kinds = _kinds(schema)
    if isinstance(value, str) and "integer" in kinds and "string" not in kinds:
        return int(value) if _WHOLE.fullmatch(value) else value
    return value


def _problem(name: str, value: object, schema: Plain) -> Iterator[str]:
    """Yield what a value should be, without quoting it."""
    kinds = _kinds(schema)
    choices = schema.get("enum")
    if kinds and type(value) not in {each for kind in kinds for each in _TYPES[kind]}:
        yield f"'{name}' should be {' or '.join(kinds)}"
    elif choices is not None and value not in choices:
        named = ", ".join(map(str, choices))[:_MAX_CHOICES_CHARACTERS]
        yield f"'{name}' should be one of {named}"


def _names(server: str, listed: Sequence[types.Tool]) -> list[str]:
    """Return a name for each tool that depends only on the names in the list.

    A name that is too long, or that equals another after the replacement of characters, ends in a
    hash of the original.
    """
    plain = [re.sub(r"[^a-zA-Z0-9_-]+", "_", f"{server}_{tool.name}") for tool in listed]
    uses = Counter(plain)
    return [
        name
        if len(name) <= _MAX_NAME_CHARACTERS
        and (uses[name] == 1 or name == f"{server}_{tool.name}")
        else _hashed(name, tool.name)
        for name, tool in zip(plain, listed, strict=True)
    ]


def _hashed(name: str, original: str) -> str:
    digest = sha256(original.encode(errors="surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    return f"{name[: _MAX_NAME_CHARACTERS - _HASH_CHARACTERS - 1]}_{digest}"


def _description(tool: types.Tool) -> str:
    text = " ".join((tool.description or tool.title or tool.name).split())
    return "".join(filter(str.isprintable, text))[:_MAX_DESCRIPTION_CHARACTERS]
