"""What a model sends for an MCP tool, held against the schema that the server gave.

Only keywords whose check takes a bounded time are checked: no regular expressions, no references
beyond the schema itself, and a limited number of steps. Nor is the schema held against JSON
Schema's own, which takes a millisecond for each property: only the keywords that are used here have
to be of the right shape. The server checks its arguments anyway; this is so that the model learns
at once, and in a sentence, what to send instead.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import create
from referencing import Registry
from referencing.exceptions import Unresolvable

from tools.display import visible
from tools.errors import InvalidArguments
from tools.schema import parse_object

_MAX_STEPS: Final = 4_000
_CHARACTERS_OF_A_STEP: Final = 8  # of a value that is compared as a whole
_MAX_PROBLEMS: Final = 5
_MAX_ERRORS: Final = 32  # that are put into words; many of them may read the same
_MAX_NAME_CHARACTERS: Final = 64
_MAX_CHOICES_CHARACTERS: Final = 500
_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_Fits = Callable[[Any], bool]


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_schema, value))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    names = value if _are_names(value) else [value]
    return all(isinstance(name, str) and name in _TYPES for name in names)


_SHAPES: Final[Mapping[str, _Fits]] = {
    "$ref": lambda value: value == "#" or (isinstance(value, str) and value.startswith("#/")),
    "additionalProperties": _is_schema,
    "allOf": _are_schemas,
    "anyOf": _are_schemas,
    "const": lambda _: True,
    "enum": lambda value: isinstance(value, list),
    "exclusiveMaximum": _is_number,
    "exclusiveMinimum": _is_number,
    "items": _is_schema,
    "maxItems": _is_number,
    "maxLength": _is_number,
    "maximum": _is_number,
    "minItems": _is_number,
    "minLength": _is_number,
    "minimum": _is_number,
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "oneOf": _are_schemas,
    "prefixItems": _are_schemas,
    "properties": lambda value: isinstance(value, dict) and all(map(_is_schema, value.values())),
    "required": _are_names,
    "type": _is_type,
}
"""The keywords that are checked, and how each has to look."""

_SENTENCES: Final = {
    "anyOf": "fits none of the forms it may have",
    "oneOf": "should fit exactly one of the forms it may have",
    "minimum": "should be at least {}",
    "exclusiveMinimum": "should be more than {}",
    "maximum": "should be at most {}",
    "exclusiveMaximum": "should be less than {}",
    "multipleOf": "should be a multiple of {}",
    "minLength": "should have at least {} characters",
    "maxLength": "should have at most {} characters",
    "minItems": "should have at least {} items",
    "maxItems": "should have at most {} items",
}

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
_steps_left: ContextVar[int] = ContextVar("steps_left")


class _NotWorthIt(Exception):
    """The schema is not valid, or makes the check take too long."""


def _counted(name: str, keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _steps_left.set(_steps_left.get() - _steps(name, value, instance))
        if _steps_left.get() < 0:
            raise _NotWorthIt
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _steps(name: str, value: Any, instance: Any) -> int:
    """Return what a check may cost: it goes through what is expected and what is given."""
    if not _SHAPES[name](value):  # reached by a reference: nobody has looked at it
        raise _NotWorthIt
    if name in {"const", "enum"}:
        return 1 + len(str(value)) // _CHARACTERS_OF_A_STEP
    return 1 + sum(len(part) for part in (value, instance) if isinstance(part, list | dict))


def _additional(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """Check what no property describes, unless a regular expression may describe it."""
    if "patternProperties" not in schema:
        yield from _KEYWORDS["additionalProperties"](validator, value, instance, schema) or ()


_KEYWORDS: Final[Mapping[str, Keyword]] = Draft202012Validator.VALIDATORS
_Validator: Final = create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={
        name: _counted(name, _KEYWORDS[name] if name != "additionalProperties" else _additional)
        for name in _SHAPES
    },
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


def parser(schema: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Return what makes arguments of a model's text; it raises InvalidArguments.

    Args:
        schema: of JSON Schema 2020-12; what it is not is not held against anything.
    """
    validator = _Validator(schema, registry=Registry())

    def parse(text: str) -> dict[str, Any]:
        arguments = parse_object(text)
        if problems := _problems(validator, arguments):
            raise InvalidArguments("; ".join(problems))
        return arguments

    return parse


def _problems(validator: Any, arguments: dict[str, Any]) -> list[str]:
    """Return the first few problems; what cannot be checked with bounded work has none."""
    _steps_left.set(_MAX_STEPS)
    problems: dict[str, None] = {}
    try:
        for error in islice(validator.iter_errors(arguments), _MAX_ERRORS):
            problems[_sentence(error)] = None
            if len(problems) == _MAX_PROBLEMS:
                break
    except (_NotWorthIt, Unresolvable, RecursionError, OverflowError):
        return []
    return list(problems)


def _sentence(error: ValidationError) -> str:
    """Say what is expected where, without quoting what was sent."""
    where = visible(".".join(map(str, error.absolute_path))[:_MAX_NAME_CHARACTERS])
    return f"'{where}' {_expected(error)}" if where else _expected(error)


def _expected(error: ValidationError) -> str:
    wanted = error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in wanted if name not in error.instance]
            return f"lacks {_listed(missing)}"
        case "additionalProperties":
            known = error.schema.get("properties", {})
            return f"may only have {_listed(list(known)) or 'nothing'}"
        case "type":
            return f"should be {' or '.join([wanted] if isinstance(wanted, str) else wanted)}"
        case "enum":
            return f"should be one of {_listed(wanted)}"
        case keyword:
            return _SENTENCES.get(keyword, "does not fit").format(wanted)


def _listed(values: list[Any]) -> str:
    text = ", ".join(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for value in values
    )
    return text[:_MAX_CHOICES_CHARACTERS]
