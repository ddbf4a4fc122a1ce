"""What a model sends for an MCP tool, held against the schema that the server gave.

Only keywords whose check takes a bounded time are checked: no regular expressions, no references
beyond the schema itself, and a limited number of steps. The server checks its arguments anyway;
this is so that the model learns at once, and in a sentence, what to send instead.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError
from jsonschema.validators import create
from referencing import Registry
from referencing.exceptions import Unresolvable

from tools.base import visible
from tools.errors import InvalidArguments
from tools.schema import parse_object

_MOST_STEPS: Final = 20_000
_MOST_PROBLEMS: Final = 5
_MOST_NAME_CHARACTERS: Final = 64
_MOST_CHOICES_CHARACTERS: Final = 500
_CHECKED: Final = frozenset(
    {
        "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum",
        "exclusiveMinimum", "items", "maxItems", "maxLength", "maximum", "minItems", "minLength",
        "minimum", "multipleOf", "oneOf", "prefixItems", "properties", "required", "type",
    }
)  # fmt: skip

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


class _TooManySteps(Exception):
    """The schema makes the check longer than it is worth."""


def _counted(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _steps_left.set(_steps_left.get() - 1)
        if _steps_left.get() < 0:
            raise _TooManySteps
        yield from keyword(validator, value, instance, schema) or ()

    return check


def _additional_properties(
    validator: Any, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """Check what no property describes, unless a regular expression may describe it."""
    if "patternProperties" not in schema:
        yield from _KEYWORDS["additionalProperties"](validator, value, instance, schema) or ()


_KEYWORDS: Final[Mapping[str, Keyword]] = Draft202012Validator.VALIDATORS
_Validator: Final = create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={name: _counted(_KEYWORDS[name]) for name in _CHECKED}
    | {"additionalProperties": _counted(_additional_properties)},
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


def parser(schema: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Return what makes arguments of a model's text; it raises InvalidArguments.

    A schema that is none of JSON Schema 2020-12 is not held against anything.
    """
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, Unresolvable, RecursionError):
        return parse_object
    validator = _Validator(schema, registry=Registry())

    def parse(text: str) -> dict[str, Any]:
        arguments = parse_object(text)
        if problems := _problems(validator, arguments):
            raise InvalidArguments("; ".join(problems))
        return arguments

    return parse


def _problems(validator: Any, arguments: dict[str, Any]) -> list[str]:
    """Return the first few problems; what cannot be checked with bounded work has none."""
    _steps_left.set(_MOST_STEPS)
    problems: dict[str, None] = {}
    try:
        for error in validator.iter_errors(arguments):
            problems[_sentence(error)] = None
            if len(problems) == _MOST_PROBLEMS:
                break
    except (_TooManySteps, Unresolvable, RecursionError):
        return []
    return list(problems)


def _sentence(error: ValidationError) -> str:
    """Say what is expected where, without quoting what was sent."""
    where = visible(".".join(map(str, error.absolute_path))[:_MOST_NAME_CHARACTERS])
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
    return text[:_MOST_CHOICES_CHARACTERS]
