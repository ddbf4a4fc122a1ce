"""A server's list of tools as tools of ours: names, descriptions, schemas made harmless."""

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from mcp import types

from tools.base import Tool, ToolOutput
from tools.display import visible
from tools.mcp.arguments import parser
from tools.settings import McpServer

MAX_TOOLS: Final = 64
"""Of one server; the model reads all of them with every question."""
MAX_SCHEMA_BYTES: Final = 16_384
_MAX_SENT_SCHEMA_BYTES: Final = 2 * MAX_SCHEMA_BYTES  # with titles and comments
_MAX_NAME_CHARACTERS: Final = 63  # 64 is the least that an API takes, and Gemini may need one more
_MAX_DESCRIPTION_CHARACTERS: Final = 1024
_MAX_LIST_CHARACTERS: Final = 500
_MAX_SCHEMA_DEPTH: Final = 24
_HASH_CHARACTERS: Final = 8
_NAMES_INSIDE: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_LEFT_OUT: Final = frozenset(
    {"$anchor", "$comment", "$dynamicAnchor", "$dynamicRef", "$id", "$schema", "title"}
)
_ONLY_INSIDE: Final = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "if"})
"""What endpoints refuse at the top of a tool's parameters, legal as it is."""

Call = Callable[[str, dict[str, Any]], Awaitable[ToolOutput]]
"""Calls a tool by the name that its server gave it."""


class _TooDeep(Exception):
    """The schema is nested deeper than anybody needs."""


def usable_tools(
    server: str,
    listed: Sequence[types.Tool],
    *,
    call: Call,
    timeout_seconds: float,
    taken: Container[str],
    chosen: Collection[str] = (),
) -> list[Tool]:
    """Return those tools of a list that can be offered.

    Args:
        server: the name before theirs.
        listed: as the server sent it; one without a name stands for one that broke the protocol.
        call: runs one of them.
        timeout_seconds: for one call.
        taken: names that others have.
        chosen: those that the operator wants, by the server's name for them or by ours; all if
            empty.
    """
    tools: dict[str, Tool] = {}
    for name, tool in zip(_names(server, listed), listed, strict=True):
        if len(tools) == MAX_TOOLS:
            break
        if chosen and tool.name not in chosen and name not in chosen:
            continue
        schema = _harmless_schema(tool.input_schema)
        if tool.name and schema is not None and name not in tools and name not in taken:
            tools[name] = _tool(name, tool, schema, call, timeout_seconds)
    return list(tools.values())


def remark(server: McpServer, listed: Sequence[types.Tool], tools: Sequence[Tool]) -> str:
    """Say which tools of a server are not offered although they are wanted; empty if none."""
    names = _names(server.name, listed)
    setting = f"MCP__SERVERS__{server.name.upper()}__TOOLS"
    known = {*names, *(tool.name for tool in listed)}
    if unknown := sorted(server.tools - known):
        has = visible(", ".join(tool.name for tool in listed))
        return f"It has no tool {', '.join(unknown)}; it has {_cut(has) or 'none'}. See {setting}."
    wanted = len(server.tools) or len(listed)
    if wanted <= len(tools):
        return ""
    if len(tools) == MAX_TOOLS:
        return f"{MAX_TOOLS} tools of a server are used at most: choose them by {setting}."
    return (
        f"{wanted - len(tools)} more are left out: another tool has the name, or the description"
        " is wrong or too long."
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LIST_CHARACTERS else f"{text[: _MAX_LIST_CHARACTERS - 1]}…"


def _tool(
    name: str, tool: types.Tool, schema: Mapping[str, Any], call: Call, timeout_seconds: float
) -> Tool:
    annotations = tool.annotations or types.ToolAnnotations()
    return Tool(
        name=name,
        description=_description(tool),
        parameters={key: value for key, value in schema.items() if key not in _ONLY_INSIDE},
        parse=parser(schema),
        run=lambda arguments, _: call(tool.name, arguments),
        side_effects=annotations.read_only_hint is not True,
        untrusted=True,
        timeout_seconds=timeout_seconds,
    )


def _names(server: str, listed: Sequence[types.Tool]) -> list[str]:
    """Return a name for each tool that depends on nothing but the names of the list.

    A name that had to be changed and is then like another, or too long, ends in a hash of what
    it was.
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


def _harmless_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema that a model may be shown, None where it is too large for that."""
    if _size(schema) > _MAX_SENT_SCHEMA_BYTES:
        return None
    try:
        harmless: dict[str, Any] = _harmless(schema, 0)
    except _TooDeep:
        return None
    harmless["type"] = "object"
    if not isinstance(harmless.get("properties"), dict):
        harmless["properties"] = {}
    return harmless if _size(harmless) <= MAX_SCHEMA_BYTES else None


def _size(schema: Mapping[str, Any]) -> int:
    return len(json.dumps(schema, ensure_ascii=False).encode(errors="replace"))


def _harmless(node: Any, depth: int) -> Any:
    """Return a schema without titles, identities and references to somewhere else."""
    if depth > _MAX_SCHEMA_DEPTH:
        raise _TooDeep
    if isinstance(node, list):
        return [_harmless(item, depth + 1) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: _harmless(inner, depth + 2) for name, inner in value.items()}
        if key in _NAMES_INSIDE and isinstance(value, dict)
        else _harmless(value, depth + 1)
        for key, value in node.items()
        if key not in _LEFT_OUT and not (key == "$ref" and not str(value).startswith("#"))
    }
