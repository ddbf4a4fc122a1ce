"""`calculate` and `convert_units` as tools."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from pydantic import Field

from sandbox.policy import SandboxPolicy
from sandbox.pool import Limits, Sandbox
from tools.base import Tool
from tools.calculator.notation import MAX_CHARACTERS
from tools.schema import tool_from

MAX_UNIT_CHARACTERS: Final = 100
_CALLS_PER_MINUTE: Final = 6_000  # it costs nobody but this machine: the bot's own limit decides
_UNITS: Final = Limits(idle_seconds=600)  # they are asked for rarely, and their table is large


@asynccontextmanager
async def open_calculator(sandboxes: SandboxPolicy) -> AsyncIterator[Tool]:
    """Provide the calculator; its processes start at the first calculation and end with this.

    Raises:
        WorkUnavailable: sandboxes may not run here.
    """
    sandboxes.require_walls()
    async with Sandbox("tools.calculator.worker", policy=sandboxes) as sandbox:

        async def calculate(
            expression: Annotated[str, Field(max_length=MAX_CHARACTERS)],
        ) -> str:
            """Calculate precisely. Use it for every calculation with numbers.

            Args:
                expression: For example 2^10, sqrt(16), sin(pi/2), 15% of 80, 200 + 10%, 50!,
                    10 mod 3, round(2/3, 4). Angles are in radians: sin(radians(30)). log is the
                    natural logarithm, log(8, 2) has a base. Also abs, ceil, floor, min, max, sum,
                    exp, ln, log2, log10, cbrt, hypot, gcd, lcm, comb, perm, asin, acos, atan,
                    atan2, sinh, cosh, tanh, degrees; pi, e, tau.
            """
            return await sandbox.call(expression)

        yield tool_from(calculate, calls_per_minute=_CALLS_PER_MINUTE)


@asynccontextmanager
async def open_converter(sandboxes: SandboxPolicy) -> AsyncIterator[Tool]:
    """Provide the converter of units; see `open_calculator`."""
    sandboxes.require_walls()
    async with Sandbox("tools.calculator.conversion_worker", _UNITS, policy=sandboxes) as sandbox:

        async def convert_units(
            value: float,
            from_unit: Annotated[str, Field(max_length=MAX_UNIT_CHARACTERS)],
            to_unit: Annotated[str, Field(max_length=MAX_UNIT_CHARACTERS)],
        ) -> str:
            """Convert a value from one unit into another. Use it for every conversion.

            Args:
                value: How much.
                from_unit: For example km, miles, °F, kg, lb, cups, km/h, m^2, kWh, Mbit/s, mpg.
                to_unit: What it is to be in; also two, as in: ft and in. No currencies.
            """
            asked = {"value": repr(value), "from": from_unit, "to": to_unit}
            return await sandbox.call(json.dumps(asked))

        yield tool_from(convert_units, calls_per_minute=_CALLS_PER_MINUTE)
