"""Reading JSON that strangers wrote: no repeated keys, no NaN or infinity, no surprises."""

import json
from typing import Annotated, Final, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from bot.attestation.errors import MalformedEvidence

NAMED_FIELDS: Final = 3
"""Fields that an error names; of more it says only how many."""


def _with_utf8(value: str) -> str:
    value.encode()
    return value


Text = Annotated[str, AfterValidator(_with_utf8)]
"""What can be hashed: half a surrogate pair, which JSON can write, has no UTF-8."""

VersionOne = Annotated[int, Field(ge=1, le=1)]
"""A format's version. `Literal[1]` would take `true` as well."""


class StrictModel(BaseModel):
    """A shape without conversions and without room for more."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


_Model = TypeVar("_Model", bound=BaseModel)


def decode(text: str | bytes, what: str) -> object:
    """Return what JSON says.

    Args:
        text: the JSON; bytes must be UTF-8. The caller bounds its size.
        what: how an error calls it, as in "the bundle".

    Raises:
        MalformedEvidence: it is no JSON, or one object has a key twice, so that two readers could
            see two things in it.
    """
    try:
        decoded: object = json.loads(
            text.decode() if isinstance(text, bytes) else text,
            object_pairs_hook=_without_repeated_keys,
            parse_constant=_no_such_number,
        )
    except (ValueError, RecursionError):
        raise MalformedEvidence(
            f"{what} is not readable: no JSON, or a key stands in it twice"
        ) from None
    return decoded


def read(model: type[_Model], text: str | bytes, what: str) -> _Model:
    """Return what JSON says as a model.

    Args:
        model: the expected shape; a `StrictModel` unless more may stand there.
        text: the JSON; the caller bounds its size.
        what: how an error calls it.

    Raises:
        MalformedEvidence: it is no JSON, or not of the model's shape; names fields, no values.
    """
    decoded = decode(text, what)
    try:
        return model.model_validate(decoded)
    except ValidationError as error:
        raise MalformedEvidence(f"{what} is not of the expected shape: {_fields(error)}") from None


def _without_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key stands twice")
    return keys


def _no_such_number(_: str) -> NoReturn:
    raise ValueError("JSON knows no such number")


def _fields(error: ValidationError) -> str:
    """Name the first fields that are wrong; a key that is not expected may be anyone's words."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    names = [
        "a field that nobody expects"
        if detail["type"] == "extra_forbidden"
        else f"`{'.'.join(map(str, detail['loc'])) or 'all of it'}`"
        for detail in details
    ]
    more = len(names) - NAMED_FIELDS
    return ", ".join(names[:NAMED_FIELDS]) + (f" and {more} more" if more > 0 else "")
