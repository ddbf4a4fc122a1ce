"""Fields of answers, read leniently and within bounds, for the dialects' wire models."""

from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

MAX_TOKEN_COUNT: Final = 1_000_000_000
MAX_ENTRIES: Final = 128
"""Choices, blocks or pieces of tool calls in one event or answer; no endpoint sends a tenth."""


def none_if_wrong(value: object, validate: ValidatorFunctionWrapHandler) -> Any:
    """A count or a label that makes no sense must not cost the answer."""
    try:
        return validate(value)
    except ValidationError:
        return None


T = TypeVar("T")
Few = Annotated[tuple[T, ...], Field(max_length=MAX_ENTRIES)]
Count = Annotated[int, Field(ge=0, le=MAX_TOKEN_COUNT)]
Label = Annotated[str | None, WrapValidator(none_if_wrong)]


class Wire(BaseModel):
    """A part of an answer; unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)
