"""Strict reading of strangers' JSON (no repeated keys, no NaN), and its canonical form."""

import json
import re
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
)

from bot.attestation.errors import MalformedEvidence


def _with_utf8(value: str) -> str:
    value.encode()
    return value


Text = Annotated[str, AfterValidator(_with_utf8)]
"""Text that can be hashed: JSON can write half a surrogate pair, which has no UTF-8."""

Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _bytes_of_hex(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not re.fullmatch("([0-9a-f]{2})+", value):
        raise ValueError("bytes in lower-case hexadecimal are expected")
    return bytes.fromhex(value)


HexBytes = Annotated[bytes, BeforeValidator(_bytes_of_hex), PlainSerializer(bytes.hex)]
"""Bytes that JSON writes in lower-case hexadecimal."""
KeyId = Annotated[str, Field(pattern="^([0-9a-f]{2}){1,1024}$")]


STRICT: Final = ConfigDict(strict=True, extra="forbid")
"""For pydantic dataclasses."""


class StrictModel(BaseModel):
    """Shape without conversions and without further fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


_Shape = TypeVar("_Shape")


def decode(text: str | bytes, what: str) -> object:
    """Decode JSON; the caller bounds its size.

    Args:
        what: name of the document for an error, as in "the bundle".

    Raises:
        MalformedEvidence: it is not JSON, or an object repeats a key, so that two readers could
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
            f"{what} is not readable: it is not JSON, or it repeats a key"
        ) from None
    return decoded


def read(shape: type[_Shape], text: str | bytes, what: str) -> _Shape:
    """Decode JSON as a model or a pydantic dataclass; see `decode`.

    Raises:
        MalformedEvidence: it is not JSON, or has another shape; names a field, never a value.
    """
    decode(text, what)
    try:
        # From the text, because the strict mode takes no decoded objects for dataclasses.
        return TypeAdapter(shape).validate_json(text)
    except ValidationError as error:
        raise MalformedEvidence(f"{what} is not of the expected shape: {_field(error)}") from None


def plain(value: object) -> Any:
    """Return a model or a pydantic dataclass in the types of JSON."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def canonical_json(value: object) -> str:
    """Return JSON as RFC 8785 (JCS) writes it, so that two programs hash the same bytes.

    Covers objects with ASCII keys, arrays, strings, booleans, null and integers. JCS writes floats
    differently; the bot uses none.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _without_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("repeated key")
    return keys


def _no_such_number(_: str) -> NoReturn:
    raise ValueError("JSON has no such number")


def _field(error: ValidationError) -> str:
    """Name the first wrong field; an unexpected key may be anyone's words."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return "an unexpected field"
    # Between the names of fields, pydantic names the shapes of a union.
    names = [str(part) for part in first["loc"] if re.fullmatch(r"\w+", str(part))]
    return f"`{'.'.join(names) or 'all of it'}`"
