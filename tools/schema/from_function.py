"""Make tools of functions: typed, documented arguments become a model and a small JSON Schema."""

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, TypedDict, Unpack, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails, from_json

from tools.base import Caller, Consent, Tool, ToolOutput
from tools.display import visible
from tools.errors import InvalidArguments
from tools.schema.plain import Plain, only_keywords, parameters_of, plain

_SHOWN: Final = frozenset(
    {"type", "description", "enum", "anyOf", "items", "properties", "required"}
)
"""Keywords that a model is shown; the others cost more tokens than they save in wrong calls."""
_ARGUMENT: Final = re.compile(r"(\w+)(?: \([^)]*\))?:\s*(.+)")
_MAX_PROBLEMS: Final = 5
_MAX_NAME_CHARACTERS: Final = 64
_MAX_PROBLEM_CHARACTERS: Final = 200
_MAX_HEADING_CHARACTERS: Final = 80
"""Bound of a value in a question's heading; the list below has the whole value."""


class Permissions(TypedDict, total=False):
    """Fields of `Tool` that a function does not tell."""

    side_effects: bool
    consent: Callable[[Any], Consent] | None
    asks_if: Callable[[Any, Caller], bool] | None
    untrusted: bool
    lasting: bool
    calls_per_minute: int
    timeout_seconds: float | None
    probe: Callable[[], Awaitable[None]] | None
    admins_only: bool
    changes: bool
    bookkeeping: bool
    answered_by_person: bool


def tool_from(
    function: Callable[..., Awaitable[str | ToolOutput]],
    *,
    question: str | None = None,
    address: str | None = None,
    given: Mapping[str, Callable[[Caller], object]] | None = None,
    **permissions: Unpack[Permissions],
) -> Tool:
    """Make a tool of an async function.

    The function's name is the tool's name, and the first paragraph of its docstring the
    description. The docstring's `Args:`, or an argument's own `Field`, describe those arguments
    whose names do not say enough: the model reads all of it with every request.

    Args:
        function: async, with a type for every argument.
        question: heading of the question to a person, with `{argument}` for the beginning of an
            argument's value. All arguments are listed below it, whole.
        address: the argument that is an internet address, chosen by the model.
        given: arguments hidden from the model, each with a function from the caller to its value.
        permissions: see `Tool`.

    Raises:
        TypeError: the function is not async, or a type or the docstring is missing.
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
        parse=partial(_parse, arguments),
        run=run,
        question=None if question is None else partial(_filled_in, question),
        address=None if address is None else attrgetter(address),
        **permissions,
    )


def parse_object(text: str) -> dict[str, Any]:
    """Parse the arguments that a model sends; an empty text is an empty object.

    Raises:
        InvalidArguments: it is not one JSON object; the text says how it differs.
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
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:  # no float holds it, so it was read as infinite
            raise InvalidArguments("a number in it is too large") from None
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        raise InvalidArguments(
            "the JSON object is inside a JSON string (encoded twice); send the object itself"
        )
    raise InvalidArguments("this is JSON, but not an object")


def _filled_in(question: str, values: BaseModel) -> str:
    beginnings = {}
    for name, value in values.model_dump(mode="json").items():
        text = json.dumps(value, ensure_ascii=False)
        more = "…" if len(text) > _MAX_HEADING_CHARACTERS else ""
        beginnings[name] = text[:_MAX_HEADING_CHARACTERS] + more
    return question.format_map(beginnings)


def _parse(model: type[BaseModel], text: str) -> BaseModel:
    try:
        return model.model_validate(parse_object(text))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = [*map(_problem, details[:_MAX_PROBLEMS])]
        if more := len(details) - len(problems):
            problems.append(f"and {more} more problems")
        raise InvalidArguments("; ".join(problems)) from None


def _problem(detail: ErrorDetails) -> str:
    """Return a problem with the name of the argument, but without its value."""
    name = visible(".".join(map(str, detail["loc"]))[:_MAX_NAME_CHARACTERS])
    if detail["type"] == "missing":
        return f"'{name}' is missing"
    if detail["type"] == "extra_forbidden":
        return f"there is no argument '{name}'"
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "union_tag_invalid":  # the message would quote the value
        message = f"Input should be of one of the kinds {detail['ctx']['expected_tags']}"
    if message.startswith("Input "):
        problem = f"'{name}' {message.removeprefix('Input ')}"
    else:
        problem = f"'{name}': {message}" if name else message
    more = "…" if len(problem) > _MAX_PROBLEM_CHARACTERS else ""
    return problem[:_MAX_PROBLEM_CHARACTERS] + more


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
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[parameter.name] = (hint, default)
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


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


def _parameters(model: type[BaseModel]) -> Plain:
    schema = plain(model.model_json_schema())
    if schema is None:
        raise TypeError(f"{model.__name__} has arguments that are too large to be described")
    return {**parameters_of(only_keywords(schema, _SHOWN)), "additionalProperties": False}
