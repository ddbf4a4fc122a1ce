"""Tools made of functions."""

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from tools.base import Caller, InvalidArguments
from tools.schema import tool_from


class Unit(StrEnum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Place(BaseModel):
    """A place on Earth."""

    name: str = Field(description="as people call it")
    title: Annotated[str, Field(max_length=9)] = ""


async def weather(
    place: Place,
    days: Annotated[int, Field(ge=1, le=7)],
    unit: Unit = Unit.METRIC,
    detail: Literal["short", "long"] = "short",
    language: Annotated[str, Field(description="a code such as en", max_length=2)] = "en",
) -> str:
    """Tell the weather
    of the next days.

    Not the climate.

    Args:
        place: where.
        days: how many,
            counted from today.
        detail: how much.

    Returns:
        A text.
    """
    return f"{place.name} {days} {unit} {detail} {language}"


async def test_a_function_becomes_a_tool_with_a_short_plain_schema() -> None:
    tool = tool_from(weather)
    assert (tool.name, tool.side_effects) == ("weather", False)
    assert tool.description == "Tell the weather of the next days. Not the climate."
    arguments = tool.parse('{"place": {"name": "Oslo"}, "days": "3"}')
    assert await tool.run(arguments, Caller("someone")) == "Oslo 3 metric short en"
    assert tool.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["place", "days"],
        "properties": {
            "place": {
                "type": "object",
                "description": "where.",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "description": "as people call it"},
                    "title": {"type": "string"},
                },
            },
            "days": {"type": "integer", "description": "how many, counted from today."},
            "unit": {"type": "string", "enum": ["metric", "imperial"]},
            "detail": {"type": "string", "enum": ["short", "long"], "description": "how much."},
            "language": {"type": "string", "description": "a code such as en"},
        },
    }


async def test_a_method_keeps_its_object() -> None:
    class Greeter:
        greeting = "Hello"

        async def greet(self, name: str) -> str:
            """Greet somebody."""
            return f"{self.greeting}, {name}"

    tool = tool_from(Greeter().greet)
    assert list(tool.parameters["properties"]) == ["name"]  # type: ignore[call-overload]
    assert await tool.run(tool.parse('{"name": "you"}'), Caller("someone")) == "Hello, you"


def test_unclear_declarations_are_refused_at_the_start() -> None:
    def not_async(text: str) -> str:
        """Do."""
        return text

    async def no_docstring() -> str:
        return ""

    async def no_type(text) -> str:  # type: ignore[no-untyped-def]
        """Do."""
        return str(text)

    for function, complaint in (
        (not_async, "not_async is not async"),
        (no_docstring, "no_docstring has no docstring"),
        (no_type, "text has no type"),
    ):
        with pytest.raises(TypeError, match=complaint):
            tool_from(function)  # type: ignore[arg-type]


async def choose(options: tuple[str, ...] = (), count: int = 3) -> str:
    """Choose something."""
    return " or ".join(options) + str(count)


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ('{"options": "[\\"a\\", \\"b\\"]"}', "a or b3"),
        ('{"options": "a, b"}', "a or b3"),
        ('{"options": null, "count": null}', "3"),
        ('{"count": "11"}', "11"),
    ],
)
async def test_arguments_are_read_as_they_were_meant(arguments: str, result: str) -> None:
    tool = tool_from(choose)
    assert await tool.run(tool.parse(arguments), Caller("ada")) == result


def test_problems_name_no_types_of_python() -> None:
    with pytest.raises(InvalidArguments, match="'options' should be a valid list"):
        tool_from(choose).parse('{"options": 5}')
