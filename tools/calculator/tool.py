"""`calculate` as a tool."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final

from pydantic import Field

from sandbox.policy import SandboxPolicy
from sandbox.pool import Limits, Sandbox
from tools.base import Tool
from tools.calculator.notation import MAX_CHARACTERS
from tools.calculator.reading import Reading, reading
from tools.schema import tool_from

_CALLS_PER_MINUTE: Final = 6_000  # it costs nobody but this machine: the bot's own limit decides
_MEASURES: Final = Limits(idle_seconds=600)  # they are asked for rarely, and their table is large


@asynccontextmanager
async def open_calculator(sandboxes: SandboxPolicy) -> AsyncIterator[Tool]:
    """Provide the calculator; its processes start at the first calculation and end with this.

    Raises:
        ToolUnavailable: sandboxes may not run here.
    """
    sandboxes.require_walls()
    async with (
        Sandbox("tools.calculator.worker", policy=sandboxes) as numbers,
        Sandbox("tools.calculator.measures_worker", _MEASURES, policy=sandboxes) as measures,
    ):

        async def calculate(
            expression: Annotated[str, Field(max_length=MAX_CHARACTERS)],
        ) -> str:
            """Calculate precisely, also with units and dates. Use it for every calculation.

            Args:
                expression: For example 2^10, sqrt(16), sin(pi/2), 15% of 80, 200 + 10%, 50!,
                    10 mod 3, round(2/3, 4). Angles are in radians: sin(radians(30)). log is the
                    natural logarithm, log(8, 2) has a base. Also abs, ceil, floor, min, max, sum,
                    exp, ln, log2, log10, cbrt, hypot, gcd, lcm, comb, perm, asin, acos, atan,
                    atan2, sinh, cosh, tanh, degrees; pi, e, tau. Units: 5 km in miles,
                    3 ft 4 in to cm, 100 °F in °C, 1.5 GB / 20 Mbit/s. Dates as YYYY-MM-DD, times
                    in UTC: 2026-11-22 + 6 weeks, days between 2026-01-01 and today, weekday of
                    2026-12-24, 14:30 + 95 min.
            """
            plain = reading(expression) is Reading.NUMBERS
            return await (numbers if plain else measures).call(expression)

        yield tool_from(calculate, calls_per_minute=_CALLS_PER_MINUTE)
