"""Tools from functions: typed, documented arguments become a model and a small JSON Schema."""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails, from_json

from tools.base import Caller, Consent, Tool, ToolOutput
from tools.display import visible
from tools.errors import InvalidArguments

_ARGUMENT: Final = re.compile(r"(\w+)(?: \([^)]*\))?:\s*(.+)")
_EMPTY: Final = inspect.Parameter.empty
_MAX_PROBLEMS: Final = 5
_MAX_NAME_CHARACTERS: Final = 64
_MAX_EXPECTATION_CHARACTERS: Final = 200
_MAX_HEADING_CHARACTERS: Final = 80
"""Of a value in a question's heading; the whole of it stands in the list below."""


def tool_from(
    function: Callable[..., Awaitable[str | ToolOutput]],
    *,
    side_effects: bool = False,
    question: str | None = None,
    consent: Callable[[Any], Awaitable[Consent]] | None = None,
    asks_if: Callable[[Any, Caller], bool] | None = None,
    untrusted: bool = False,
    address: str | None = None,
    lasting: bool = False,
    calls_per_minute: int = 120,
    timeout_seconds: float | None = None,
    probe: Callable[[], Awaitable[None]] | None = None,
    admins_only: bool = False,
    changes: bool = False,
    bookkeeping: bool = False,
    answered_by_person: bool = False,
    given: Mapping[str, Callable[[Caller], object]] | None = None,
) -> Tool:
    """Make a tool of an async function.

    The function's name is the tool's name, the first paragraph of its docstring the description,
    the docstring's `Args:` describe the arguments, as an argument's own `Field` may do too.

    Args:
        function: async, with a type and a description for every argument; returns what the model
            reads, or that and files for the person.
        side_effects: it writes, runs or spends something, so a person is asked before each call.
        question: what a call is going to do, with `{argument}` in place of the beginning of an
            argument's value. All arguments are listed below it, whole.
        consent: what a call needs of people, by its arguments; None: each is asked about.
        asks_if: whether a person is asked about a call, where that depends on its arguments.
        untrusted: its results hold what strangers wrote.
        address: the argument that is an address on the internet, chosen by the model.
        lasting: see `Tool`.
        calls_per_minute: of all people together.
        timeout_seconds: for one run, where it is another than that of all tools.
        probe: finds out whether it can work at all; raises ToolUnavailable.
        admins_only: it does not exist for anybody else.
        changes: it changes or sends something, though nobody needs to be asked about it.
        bookkeeping: see `Tool`.
        answered_by_person: a person gives the result; see `Tool`.
        given: arguments that the model neither sees nor sends, each with what it is for a caller.

    Raises:
        TypeError: the function is not async, or a type or a description is missing.
    """
    name = function.__name__
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name} is not async")
    given = given or {}
    description, argument_texts = _documentation(function)
    arguments = _arguments_model(function, argument_texts, given)
    parameters = _parameters(arguments)

    async def run(values: BaseModel, caller: Caller) -> str | ToolOutput:
        others = {argument: of(caller) for argument, of in given.items()}
        return await function(**dict(values), **others)

    return Tool(
        name=name,
        description=description,
        parameters=parameters,
        parse=partial(_parse, arguments, parameters),
        run=run,
        side_effects=side_effects,
        consent=consent,
        asks_if=asks_if,
        question=None if question is None else partial(_filled_in, question),
        untrusted=untrusted,
        address=None if address is None else attrgetter(address),
        lasting=lasting,
        calls_per_minute=calls_per_minute,
        timeout_seconds=timeout_seconds,
        probe=probe,
        admins_only=admins_only,
        changes=changes,
        bookkeeping=bookkeeping,
        answered_by_person=answered_by_person,
    )


def parse_object(text: str) -> dict[str, Any]:
    """Parse what a model sends as arguments; a tool that needs none may be sent an empty text.

    Raises:
        InvalidArguments: it is not one JSON object; the text says what it is instead.
    """
    text = text.strip()
    if not text:
        return {}
    if text.startswith("```"):
        raise InvalidArguments("the JSON object is inside a code fence (```); send it alone")
    try:
        value = from_json(text.encode(), allow_inf_nan=False)
    except ValueError as error:
        raise InvalidArguments(f"this is not valid JSON: {error}") from None
    if isinstance(value, dict):
        _refuse_infinite(value)
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        raise InvalidArguments(
            "the JSON object is inside a JSON string (encoded twice); send the object itself"
        )
    raise InvalidArguments("this is JSON, but not an object")


def _refuse_infinite(value: dict[str, Any]) -> None:
    """Refuse a number that no float holds: it is read as infinite, and a server is sent null."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise InvalidArguments("a number in it is too large") from None


def _filled_in(question: str, values: BaseModel) -> str:
    return question.format_map(
        {
            name: _beginning(json.dumps(value, ensure_ascii=False))
            for name, value in values.model_dump(mode="json").items()
        }
    )


def _beginning(text: str) -> str:
    if len(text) <= _MAX_HEADING_CHARACTERS:
        return text
    return f"{text[:_MAX_HEADING_CHARACTERS]}…"


def _parse(model: type[BaseModel], parameters: Mapping[str, Any], text: str) -> BaseModel:
    try:
        return model.model_validate(parse_object(text))
    except ValidationError as error:
        raise InvalidArguments("; ".join(_problems(error, parameters))) from None


def _problems(error: ValidationError, parameters: Mapping[str, Any]) -> list[str]:
    """Return the first few problems, each with the argument it is about, none with its value."""
    details = error.errors(include_url=False, include_input=False)
    problems = [_problem(detail, parameters) for detail in details[:_MAX_PROBLEMS]]
    more = len(details) - len(problems)
    return [*problems, f"and {more} more problems"] if more else problems


def _problem(detail: ErrorDetails, parameters: Mapping[str, Any]) -> str:
    *inside, last = detail["loc"] or ("",)
    path = visible(".".join(map(str, detail["loc"]))[:_MAX_NAME_CHARACTERS])
    if detail["type"] == "missing":
        expected = _expectation(_schema_at(parameters, (*inside, last)))
        return f"'{path}' is missing{expected}"
    if detail["type"] == "extra_forbidden":
        known = list(_schema_at(parameters, inside).get("properties", {}))
        return f"there is no argument '{path}'{_suggestion(str(last), known)}"
    if detail["type"] == "union_tag_invalid":  # its message would quote the value
        expected = detail["ctx"]["expected_tags"]
        return _cut(f"'{path}' should be of one of the kinds {expected}")
    message = detail["msg"].removeprefix("Value error, ")
    if message.startswith("Input "):
        return _cut(f"'{path}' {message.removeprefix('Input ')}")
    return _cut(f"'{path}': {message}" if path else message)


def _schema_at(schema: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any]:
    """Return the schema of one argument; an empty one where the path leads through a choice."""
    for step in path:
        if isinstance(step, int):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(step, {})
    return schema


def _expectation(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return _cut(f" (one of {json.dumps(schema['enum'], ensure_ascii=False)})")
    return f" ({schema['type']})" if "type" in schema else ""


def _suggestion(name: str, known: Sequence[str]) -> str:
    nearest = get_close_matches(name[:_MAX_NAME_CHARACTERS], known, n=1)
    return f" (did you mean '{nearest[0]}'?)" if nearest else ""


def _cut(text: str) -> str:
    longest = _MAX_EXPECTATION_CHARACTERS
    return text if len(text) <= longest else text[:longest] + "…"


def _arguments_model(
    function: Callable[..., object], descriptions: Mapping[str, str], given: Collection[str]
) -> type[BaseModel]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in given:
            continue
        if parameter.name not in hints:
            raise TypeError(f"{function.__name__}: {parameter.name} has no type")
        hint = hints[parameter.name]
        if text := descriptions.get(parameter.name):
            hint = Annotated[hint, Field(description=text)]
        default = ... if parameter.default is _EMPTY else parameter.default
        fields[parameter.name] = (hint, default)
    model = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
    for name, field in model.model_fields.items():
        if not field.description:
            raise TypeError(f"{function.__name__}: {name} has no description")
    return model


def _documentation(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring and the texts of its `Args:` section."""
    docstring = inspect.getdoc(function)
    if not docstring:
        raise TypeError(f"{function.__name__} has no docstring")
    description = " ".join(docstring.partition("\n\n")[0].split())
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", docstring, re.MULTILINE)
    arguments: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + section[1]).splitlines() if section else ():
        if started := _ARGUMENT.fullmatch(line):
            name = started[1]
            arguments[name] = started[2]
        elif name and line:
            arguments[name] += " " + line.strip()
    return description, arguments


def _parameters(model: type[BaseModel]) -> Mapping[str, object]:
    """Return a model's JSON Schema as models like it: no titles, no references, no null."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    plain = _plain(schema, definitions, ())
    plain.setdefault("properties", {})
    return plain


def _plain(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], inside: tuple[str, ...]
) -> dict[str, Any]:
    """Return one schema without what a model has no use for, references put in place."""
    schema = {key: value for key, value in schema.items() if key != "title"}
    if reference := schema.pop("$ref", None):
        name = reference.rpartition("/")[2]
        if name in inside:
            raise TypeError(f"{name} contains itself: that cannot be shown to a model")
        schema = {**_plain(definitions[name], definitions, (*inside, name)), **schema}
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema = {**_plain(choices[0], definitions, inside), **schema}
    if schema.get("default", ...) is None:
        del schema["default"]
    for key, value in schema.items():
        if key == "properties":
            schema[key] = {k: _plain(v, definitions, inside) for k, v in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            schema[key] = _plain(value, definitions, inside)
        elif key in {"anyOf", "oneOf", "allOf", "prefixItems"}:
            schema[key] = [_plain(choice, definitions, inside) for choice in value]
    return schema
