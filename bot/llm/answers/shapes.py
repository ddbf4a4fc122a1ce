"""The shapes that models give a tool call in JSON, or in what looks like a call in Python."""

import ast
import json
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from bot.llm.answers.lenient_json import read_object

SURE_NAMES: Final = ("tool", "tool_name", "function", "recipient_name", "tool_call")
"""Members that hold the name of a tool, also of one that there is not."""

NAMES: Final = (*SURE_NAMES, "name", "function_name", "action")
ARGUMENTS: Final = (
    "input", "arguments", "parameters", "args", "params", "tool_input", "action_input",
    "tool_arguments", "kwargs",
)  # fmt: skip
_CALLED_SO: Final = ("arguments", "parameters")
WRAPPERS: Final = ("tool_call", "function_call", "function", "tool_calls", "tool_uses", "calls")
MAX_NAME_CHARACTERS: Final = 128
MAX_PYTHON_CHARACTERS: Final = 8_000
MAX_DEPTH: Final = 32
"""Of brackets: Python's parser is not made for what is nested without end, signs included."""

_CHAIN: Final = re.compile(r"(?:[-+~]\s{0,20}){9}|\bnot\s+not\b")


class WrittenCall(NamedTuple):
    """A tool call that a model wrote as text; the arguments are JSON, as it wrote them."""

    name: str
    arguments: str


def calls_of(value: object, offered: Collection[str]) -> list[WrittenCall]:
    """Return the calls that a JSON value is; none where it is something else.

    Args:
        value: an object, or a list of them.
        offered: the names of the tools that there are.
    """
    if isinstance(value, list):
        found = [calls_of(one, offered) for one in value]
        return [call for calls in found for call in calls] if all(found) else []
    if not isinstance(value, dict):
        return []
    for wrapper in WRAPPERS:
        inner = value.get(wrapper)
        if isinstance(inner, dict | list) and (calls := calls_of(inner, offered)):
            return calls
    call = _named(value, offered) or _keyed(value, offered)
    return [call] if call is not None else []


def _named(value: Mapping[str, object], offered: Collection[str]) -> WrittenCall | None:
    """Return the call of an object that says which tool it calls."""
    key = next((one for one in NAMES if isinstance(value.get(one), str)), None)
    if key is None:
        return None
    if key == "name" and "description" in value:
        return None  # a tool is described
    name = known_name(str(value[key]), offered)
    if not name or len(name) > MAX_NAME_CHARACTERS:
        return None
    for member in ARGUMENTS:
        if member in value and (key in SURE_NAMES or name in offered or member in _CALLED_SO):
            return WrittenCall(name, arguments_of(value[member]))
    if name not in offered:
        return None  # an object with a name, and no call
    others = {member: one for member, one in value.items() if member not in {key, "id", "type"}}
    return WrittenCall(name, as_json(others))


def _keyed(value: Mapping[str, object], offered: Collection[str]) -> WrittenCall | None:
    """Return the call of an object whose only member is called as a tool."""
    if len(value) != 1:
        return None
    (name, arguments), *_ = value.items()
    if name not in offered or not isinstance(arguments, dict):
        return None
    return WrittenCall(name, arguments_of(arguments))


def known_name(written: str, offered: Collection[str]) -> str:
    """Return a tool's name without what models put before it."""
    name = written.strip().encode(errors="replace").decode()
    if name not in offered:
        bare = name.removeprefix("functions.").removeprefix("tools.").removeprefix("default_api.")
        if bare in offered or name.startswith("functions."):
            return bare
    return name


def arguments_of(value: object) -> str:
    """Return arguments as JSON, also those that are a string with JSON in it."""
    if isinstance(value, str):
        read = read_object(value)
        return value if read is None else as_json(read)
    return as_json({} if value is None else value)


def as_json(value: object) -> str:
    """Return a value as JSON; halves of letters (lone surrogates) become question marks."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def python_calls(text: str, offered: Collection[str]) -> list[WrittenCall]:
    """Return the calls that a text is, written as in Python; none where it is anything else.

    `get_weather(place="Rome")`, several in a list, or one a line, each perhaps inside `print()`.
    """
    if len(text) > MAX_PYTHON_CHARACTERS or _depth(text) > MAX_DEPTH or _CHAIN.search(text):
        return []
    try:
        parsed = ast.parse(text.strip(), mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: list[WrittenCall] = []
    for statement in parsed:
        expression = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
        several = expression.elts if isinstance(expression, ast.List) else [expression]
        for one in several:
            call = _python_call(one, offered)
            if call is None:
                return []
            found.append(call)
    return found


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _python_call(expression: ast.expr | None, offered: Collection[str]) -> WrittenCall | None:
    if not isinstance(expression, ast.Call):
        return None
    name = _dotted(expression.func)
    if name == "print" and len(expression.args) == 1:
        return _python_call(expression.args[0], offered)
    name = known_name(name.removesuffix(".call"), offered)
    if name not in offered or (expression.args and expression.keywords):
        return None
    try:
        if expression.args:
            given = ast.literal_eval(expression.args[0])
            arguments = given if len(expression.args) == 1 and isinstance(given, dict) else None
        else:
            arguments = {one.arg or "": ast.literal_eval(one.value) for one in expression.keywords}
        return None if arguments is None else WrittenCall(name, json.dumps(arguments))
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError):
        return None


def _dotted(function: ast.expr) -> str:
    """Return what is called, with at most one dot in it; empty where it is anything else."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""
