"""`calculate`: arithmetic and units, each in a sandbox of its own."""

import json
import re
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from pydantic import Field

from tools.base import Tool
from tools.calculator.arithmetic import MAX_CHARACTERS
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy
from tools.schema import tool_from

_CALLS_PER_MINUTE: Final = 6_000  # costs only this machine, so the limit per person decides
_UNITS: Final = Limits(idle_seconds=600)  # asked for rarely, and the table is large
_NUMBER: Final = r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[+-]?\d[\d.]*(?:e[+-]?\d{1,3})?"
_WANTED: Final = r"(?:in|to|into|as) (?P<to>.{1,100})"
_CONVERSION: Final = re.compile(
    rf"(?:convert )?(?P<value>{_NUMBER}) ?(?P<unit>[^\d\s()+*/^!%.,-][^()]{{0,99}}?) {_WANTED}",
    re.IGNORECASE,
)
"""A number, its unit, and the wanted unit or units."""
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?) ?([a-zµ]{1,20}),? (?:and )?", re.IGNORECASE)
_COMPOUND: Final = re.compile(
    rf"(?:convert )?(?P<amounts>(?:{_AMOUNT.pattern}){{2,4}}){_WANTED}", re.IGNORECASE
)
"""Two to four amounts that are added, such as 3 lb 4 oz."""
_FEET: Final = re.compile(
    r"(\d{1,9}) ?['\u2019\u2032] ?(\d{1,2}(?:\.\d{1,9})?)"
    r"(?: ?(?:[\"\u201d\u2033]|''|in(?= (?:in|to|as) )))?"
)
"""Feet and inches."""


_SIGNS_OF_ARABIC: Final = str.maketrans("\u066a\u066b\u066c", "%.,")


def in_ascii(expression: str) -> str:
    """Return a text with the digits of all scripts, and Arabic signs of numbers, in ASCII."""
    digits = (str(unicodedata.decimal(one)) if one.isdecimal() else one for one in expression)
    return "".join(digits).translate(_SIGNS_OF_ARABIC)


@asynccontextmanager
async def open_calculator(sandboxes: SandboxPolicy) -> AsyncIterator[Tool]:
    """Provide the calculator, or raise ToolUnavailable; its processes start with the first call."""
    sandboxes.require_walls()
    async with (
        Sandbox("tools.calculator.arithmetic", policy=sandboxes) as arithmetic,
        Sandbox("tools.calculator.units", _UNITS, policy=sandboxes) as units,
    ):

        async def calculate(
            expression: Annotated[str, Field(max_length=MAX_CHARACTERS)],
        ) -> str:
            """Calculate or convert units, exactly. Use it unless the sum is trivial.

            Args:
                expression: 15% of 80; 2^10; sqrt(16); sin(radians(30)); 180 cm in ft and in;
                    5 ft 11 in in cm. A point for decimals, no currencies.
            """
            expression = in_ascii(expression)
            if asked := conversion(expression):
                return await units.call(json.dumps(asked))
            return await arithmetic.call(expression)

        yield tool_from(calculate, calls_per_minute=_CALLS_PER_MINUTE)


def conversion(expression: str) -> dict[str, object]:
    """Return amounts, each with its unit, and the wanted unit; empty for anything else."""
    text = _FEET.sub(r"\1 ft \2 in", " ".join(expression.split()))
    if (found := _COMPOUND.fullmatch(text)) is not None:
        return {"amounts": _AMOUNT.findall(found["amounts"]), "to": found["to"]}
    found = _CONVERSION.fullmatch(text)
    if found is None:
        return {}
    return {"amounts": [(found["value"].replace(",", ""), found["unit"])], "to": found["to"]}
