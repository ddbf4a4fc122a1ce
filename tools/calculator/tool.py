"""`calculate`: arithmetic and units, each in a sandbox of its own."""

import json
import re
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
_CONVERSION: Final = re.compile(
    r"(?:convert )?([+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[+-]?\d[\d.]*(?:e[+-]?\d{1,3})?) ?"
    r"([^\d\s()+*/^!%.,-][^()]{0,99}?) (?:in|to|into|as) (.{1,100})",
    re.IGNORECASE,
)
"""A number, its unit, and the wanted unit or units."""


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
                    350 °F in °C. A point for decimals, no currencies.
            """
            if asked := conversion(expression):
                return await units.call(json.dumps(asked))
            return await arithmetic.call(expression)

        yield tool_from(calculate, calls_per_minute=_CALLS_PER_MINUTE)


def conversion(expression: str) -> dict[str, str]:
    """Return value, unit and wanted unit of a conversion; empty for anything else."""
    found = _CONVERSION.fullmatch(" ".join(expression.split()))
    return {"value": found[1].replace(",", ""), "from": found[2], "to": found[3]} if found else {}
