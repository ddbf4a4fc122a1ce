"""Tools from functions, their declarations for the APIs of models, and the check of arguments.

All of it works on the plain form of a JSON Schema. Anthropic and Gemini refuse a whole request if
one schema has a reference, a strange name or a malformed keyword. The schemas of MCP servers are
written by strangers. The plain form has references in place, no `allOf` or `oneOf`, and nothing
malformed or nested too deep. It accepts every value that the original accepts, and sometimes more.
"""

import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, TypedDict, Unpack, get_origin, get_type_hints
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails, from_json

from tools.base import Caller, Consent, InvalidArguments, Said, Tool, ToolOutput, ToolSpec
from tools.display import visible

Plain = dict[str, Any]

MAX_CHARACTERS: Final = 16_384
"""Bound of a plain schema, and so of the work that references can cause."""
MAX_WORDS: Final = 500
"""Bound of a schema or an expression that is quoted in a description, in characters."""
_DEPTHS: Final = (24, 8, 3)
"""Levels to describe: fewer if the schema gets too large."""
_CHARACTERS_OF_A_SCHEMA: Final = 16  # besides its words
_MAX_VALUE_DEPTH: Final = 8
_MAX_NUMBER: Final = 1e300

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NOT_AT_TOP: Final = frozenset({"anyOf", "enum", "items", "prefixItems", "type"})
"""Legal at the top of a tool's parameters, but APIs refuse it there."""


def plain(schema: object) -> Plain | None:
    """Return the plain form; None if it is too large even with few levels."""
    for depth in _DEPTHS:
        try:
            return _Walk(schema, depth).plain(schema)
        except _TooLarge:
            continue
    return None


def parameters_of(arguments: Plain) -> Plain:
    """Return a plain schema as the parameters of a tool, which are always an object."""
    if "object" not in arguments.get("type", "object"):
        arguments = {}
    rest = {key: value for key, value in arguments.items() if key not in _NOT_AT_TOP}
    return {"type": "object", "properties": {}, **rest}


def only_keywords(schema: Plain, keywords: Collection[str]) -> Plain:
    """Return a schema without other keywords, also in the schemas inside it."""
    found = inside(schema, lambda inner: only_keywords(inner, keywords))
    return {key: value for key, value in found.items() if key in keywords}


def inside(schema: Plain, change: Callable[[Plain], Plain]) -> Plain:
    """Return a schema with a change to every schema in it."""
    found = dict(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = change(found[key])
    for key in ("anyOf", "prefixItems"):
        if key in found:
            found[key] = [change(inner) for inner in found[key]]
    if "properties" in found:
        found["properties"] = {k: change(inner) for k, inner in found["properties"].items()}
    return found


def with_words(schema: Plain, words: Iterable[str]) -> Plain:
    """Return a schema with sentences added to its description."""
    description = schema.get("description", "").rstrip()
    if description and description[-1] not in ".!?:;":
        description += "."
    return {**schema, "description": " ".join(filter(None, (description, *words)))}


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
    )


def _is_count(value: object) -> bool:
    return _is_number(value) and isinstance(value, int) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_types(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


_KEYWORDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "type": _are_types,
    **dict.fromkeys(("description", "format"), _is_text),
    "enum": lambda value: isinstance(value, list) and bool(value),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "uniqueItems": lambda value: isinstance(value, bool),
    "required": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "default": lambda _: True,
    "examples": lambda value: isinstance(value, list),
}
"""Keywords without schemas in them, each with a check of its value."""


class _TooLarge(Exception):
    """The plain schema has more than MAX_CHARACTERS."""


class _Walk:
    """Walk through a schema, down to a depth, within MAX_CHARACTERS."""

    def __init__(self, root: object, deepest: int) -> None:
        self._root = root
        self._deepest = deepest
        self._characters_left = MAX_CHARACTERS

    def plain(self, schema: object, depth: int = 0, inside: tuple[str, ...] = ()) -> Plain:
        """Return the plain form; `inside` has the references that led here."""
        own = self._own(schema)
        if not isinstance(schema, Mapping) or depth == self._deepest:
            return own

        def inner(part: object) -> Plain:
            return self.plain(part, depth + 1, inside)

        parts = [own | self._properties(schema, inner) | self._items(schema, inner)]
        parts += [self._union(schema.get(key), inner) for key in ("anyOf", "oneOf")]
        if isinstance(pointer := schema.get("$ref"), str):
            self._pay(len(pointer))
            target = self._at(pointer)
            is_circle = pointer in inside
            parts.append(
                self._own(target)
                if is_circle
                else self.plain(target, depth + 1, (*inside, pointer))
            )
        parts += map(inner, _list(schema.get("allOf")))
        return _joined(parts)

    def _own(self, schema: object) -> Plain:
        """Return the well-formed keywords without schemas in them."""
        self._pay(_CHARACTERS_OF_A_SCHEMA)
        if not isinstance(schema, Mapping):
            return {}
        said = {key: schema[key] for key in _KEYWORDS if key in schema}
        if "const" in schema:
            said["enum"] = [schema["const"]]
        own = {
            key: value
            for key, value in said.items()
            if self._is_json(value) and _KEYWORDS[key](value)
        }
        for key in ("required", "type"):
            if isinstance(own.get(key), list):
                own[key] = list(dict.fromkeys(own[key]))
        if schema.get("nullable") is True and isinstance(own.get("type"), str):  # of OpenAPI
            own["type"] = [own["type"], "null"]
        if isinstance(pattern := schema.get("pattern"), str) and self._is_json(pattern):
            # APIs differ in the expressions that they understand.
            own = with_words(own, [f"Regular expression: {pattern[:MAX_WORDS]}"])
        return own

    def _properties(self, schema: Mapping[str, Any], inner: Callable[[object], Plain]) -> Plain:
        found: Plain = {}
        if isinstance(properties := schema.get("properties"), Mapping):
            found["properties"] = {}
            for name, part in properties.items():
                if isinstance(name, str) and part is not False:
                    self._pay(len(name))
                    found["properties"][name] = inner(part)
        others = schema.get("additionalProperties")
        if schema.get("patternProperties"):  # it describes some of the additional ones
            return found
        if others is False or (isinstance(others, Mapping) and (others := inner(others))):
            found["additionalProperties"] = others
        return found

    def _items(self, schema: Mapping[str, Any], inner: Callable[[object], Plain]) -> Plain:
        found: Plain = {}
        items = schema.get("items")
        # Drafts before 2020 wrote prefixItems as a list of items.
        if first := _list(schema.get("prefixItems")) or _list(items):
            found["prefixItems"] = [inner(item) for item in first]
        if isinstance(items, Mapping) and (every := inner(items)):
            found["items"] = every
        return found

    def _union(self, choices: object, inner: Callable[[object], Plain]) -> Plain:
        self._pay(len(_list(choices)))
        found = [inner(choice) for choice in _list(choices) if choice is not False]
        if not all(found):  # one of them accepts everything
            return {}
        return found[0] if len(found) == 1 else {"anyOf": found} if found else {}

    def _at(self, pointer: str) -> object:
        """Return the schema that a JSON pointer (RFC 6901) leads to; True if it leads nowhere."""
        found = self._root
        if pointer != "#" and not pointer.startswith("#/"):
            return True
        for step in unquote(pointer[1:]).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and len(name) < 6:
                found = found[int(name)] if int(name) < len(found) else True
            else:
                return True
        return found

    def _pay(self, characters: int) -> None:
        self._characters_left -= characters
        if self._characters_left < 0:
            raise _TooLarge

    def _is_json(self, value: object, depth: int = 0) -> bool:
        """Pay for a value, and tell whether it is JSON that is not nested too deep."""
        self._pay(len(value) if isinstance(value, str) else 4)
        if isinstance(value, float):
            return math.isfinite(value)
        if isinstance(value, int):
            return abs(value) < _MAX_NUMBER
        if isinstance(value, Mapping):
            return all(map(_is_text, value)) and self._is_json([*value, *value.values()], depth)
        if isinstance(value, list):
            return depth < _MAX_VALUE_DEPTH and all(
                self._is_json(inner, depth + 1) for inner in value
            )
        return value is None or isinstance(value, str)


def _joined(parts: Iterable[Plain]) -> Plain:
    """Return one plain schema for values that fit all of these; the first of two values counts."""
    found: Plain = {}
    properties: dict[str, Plain] = {}
    required: dict[str, None] = {}
    for part in parts:
        for key, value in part.items():
            found.setdefault(key, value)
        for name, inner in part.get("properties", {}).items():
            properties.setdefault(name, inner)
        required |= dict.fromkeys(part.get("required", ()))
    if properties:
        found["properties"] = properties
    if required:
        found["required"] = list(required)
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


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
    told: Mapping[str, Callable[[Any], Sequence[str]]]
    untrusted: bool
    lasting: bool
    as_said: Callable[[Any, Caller, Sequence[Said]], bool] | None
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

    The function's name is the tool's name, and its docstring up to `Args:` the
    description. The docstring's `Args:`, or an argument's own `Field`, describe those arguments
    whose names do not say enough: the model reads all of it with every request.

    Args:
        function: async, with a type for every argument.
        question: heading of the question to a person, with `{argument}` for the beginning of an
            argument's value. All arguments are listed below it, whole.
        given: arguments hidden from the model, each with a function from the caller to its value.

    Raises:
        TypeError: the function is not async, or a type or the docstring is missing.
    """
    name = function.__name__
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{name} is not async")
    given = given or {}
    description, arguments, parameters = _read(function, given)

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


_readings: Final[dict[object, tuple[str, type[BaseModel], Plain]]] = {}
"""Cache of `_read` by code and signature, because a reload creates the bot's functions again."""


def _read(
    function: Callable[..., object], given: Collection[str]
) -> tuple[str, type[BaseModel], Plain]:
    """Return description, arguments and parameters that a function states."""
    code = inspect.unwrap(function).__code__
    key = code, function.__doc__, str(inspect.signature(function)), frozenset(given)
    if key not in _readings:
        description, argument_texts = _documentation(function)
        arguments = _arguments_model(function, argument_texts, given)
        _readings[key] = description, arguments, _parameters(arguments)
    return _readings[key]


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
        return model.model_validate(_repaired(parse_object(text), model))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = [*map(_problem, details[:_MAX_PROBLEMS])]
        if more := len(details) - len(problems):
            problems.append(f"and {more} more problems")
        raise InvalidArguments("; ".join(problems)) from None


def _repaired(arguments: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return arguments as they were meant: without null for a default, and with lists as lists."""
    fields = model.model_fields
    optional = {name for name, field in fields.items() if not field.is_required()}
    given = {
        name: value
        for name, value in arguments.items()
        if name not in optional or not (value is None or value in _NULL_AS_TEXT)
    }
    for name in given.keys() & fields.keys():
        value = given[name]
        if isinstance(value, str) and get_origin(fields[name].annotation) in {list, tuple}:
            given[name] = _list_in(value)
    return given


_NULL_AS_TEXT: Final = ("null", "None")


def _list_in(text: str) -> list[Any]:
    """Return the list that a text is: JSON, or with commas."""
    try:
        value = from_json(text.encode(errors="replace"))
    except ValueError:
        value = None
    return value if isinstance(value, list) else [*filter(None, map(str.strip, text.split(",")))]


def _problem(detail: ErrorDetails) -> str:
    """Return a problem with the name of the argument, but without its value."""
    name = visible(".".join(map(str, detail["loc"]))[:_MAX_NAME_CHARACTERS])
    if detail["type"] == "missing":
        return f"'{name}' is missing"
    if detail["type"] == "extra_forbidden":
        return f"there is no argument '{name}'"
    message = detail["msg"].removeprefix("Value error, ")
    message = message.replace("valid tuple", "valid list").replace(
        "valid dictionary", "valid object"
    )
    message = message.split(" or instance of ")[0].split(", unable to parse")[0]
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
    """Return a docstring up to its sections, and the texts of its `Args:` section."""
    docstring = inspect.getdoc(function)
    if not docstring:
        raise TypeError(f"{function.__name__} has no docstring")
    text, *_ = re.split(r"^\w+:\n", docstring, maxsplit=1, flags=re.MULTILINE)
    description = " ".join(text.split())
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
    """Move arguments whose names Anthropic refuses into the description."""
    found = inside(schema, _with_short_names)
    properties = found.get("properties", {})
    refused = [name for name in properties if not _ANTHROPIC_ARGUMENT.fullmatch(name)]
    if not refused:
        return found
    found.pop("additionalProperties", None)  # the refused ones are additional now
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
