"""Which parts of a chat completion are encrypted where the conversation is sealed.

All that a person, a tool or the model said or showed is: contents, reasoning, and the names,
arguments and definitions of tools. Model, roles, ids and counts stay readable, because the gateway
routes and counts by them. NEAR AI's servers expect exactly these fields with
`X-Encrypt-All-Fields: true` (https://github.com/nearai/inference-sdk, the same in its three
languages); a list of parts is encrypted as a whole, as its JSON.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

OTHER_WORDS: Final = ("reasoning_content", "reasoning", "refusal")
WORDS: Final = ("content", *OTHER_WORDS)
"""Members of a message, or of a piece of one, that hold what was said."""

Transform = Callable[[str], str]
Json = Mapping[str, Any]


def seal_request(request: Json, seal: Transform) -> Json:
    """Return a request with all that was said in it encrypted."""
    sealed = {**request, "messages": [_sealed_message(m, seal) for m in request["messages"]]}
    if "tools" in request:
        sealed["tools"] = [_sealed_tool(tool, seal) for tool in request["tools"]]
    return sealed


def open_answer(answer: object, open_: Transform) -> None:
    """Decrypt, in place, all that is said in an answer or in one event of a stream.

    Args:
        answer: JSON, just parsed.
        open_: decrypts one field; ValueError where it cannot.

    Raises:
        ValueError: something is said that is not encrypted to this request.
    """
    for choice in _objects(_member(answer, "choices")):
        for key in ("message", "delta"):
            _open_message(_member(choice, key), open_)


def _sealed_message(message: Json, seal: Transform) -> Json:
    content = message["content"]
    sealed = {**message, "content": content and seal(_as_text(content))}
    if "tool_calls" in message:
        sealed["tool_calls"] = [_sealed_call(call, seal) for call in message["tool_calls"]]
    return sealed


def _as_text(content: str | list[Json]) -> str:
    """Return a content as the model's side reads it: a list of parts, images too, as its JSON."""
    if isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    return _unmistakable(content)


def _unmistakable(content: str) -> str:
    """The model's side takes a decrypted JSON array for a list of parts: make it the one part."""
    try:
        if not isinstance(json.loads(content), list):
            return content
    except (ValueError, RecursionError):
        return content
    return json.dumps([{"type": "text", "text": content}], ensure_ascii=False)


def _sealed_call(call: Json, seal: Transform) -> Json:
    function = call["function"]
    sealed = {"name": seal(function["name"]), "arguments": seal(function["arguments"])}
    return {**call, "function": sealed}


def _sealed_tool(tool: Json, seal: Transform) -> Json:
    function = tool["function"]
    sealed = {
        "name": seal(function["name"]),
        "description": seal(function["description"]),
        "parameters": seal(json.dumps(function["parameters"], ensure_ascii=False)),
    }
    return {**tool, "function": sealed}


def _open_message(message: object, open_: Transform) -> None:
    parts = _objects(_member(message, "content"))
    for part in parts:
        _open_members(part, ("text",), open_)
    _open_members(message, OTHER_WORDS if parts else WORDS, open_)
    for call in _objects(_member(message, "tool_calls")):
        _open_members(_member(call, "function"), ("name", "arguments"), open_)


def _open_members(holder: object, names: Iterable[str], open_: Transform) -> None:
    if not isinstance(holder, dict):
        return
    for name in names:
        match holder.get(name):
            case None:
                pass
            case str(text):
                holder[name] = open_(text)
            case _:
                raise ValueError("not encrypted")


def _member(holder: object, name: str) -> object:
    return holder.get(name) if isinstance(holder, dict) else None


def _objects(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
