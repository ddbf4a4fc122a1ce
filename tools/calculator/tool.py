"""`calculate` as a tool."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import Field

from tools.base import Tool
from tools.calculator.notation import MAX_CHARACTERS
from tools.sandbox.pool import Sandbox
from tools.schema import tool_from


@asynccontextmanager
async def open_calculator() -> AsyncIterator[Tool]:
    """Provide the calculator; its processes start at the first calculation and end with this."""
    async with Sandbox("tools.calculator.worker") as sandbox:

        async def calculate(
            expression: Annotated[str, Field(max_length=MAX_CHARACTERS)],
        ) -> str:
            """Calculate an arithmetic expression precisely. Use it for every calculation.

            Args:
                expression: For example 2^10, sqrt(16), sin(pi/2), 15% of 80, 200 + 10%, 50!,
                    10 mod 3, round(2/3, 4). Angles are in radians: sin(radians(30)). log is the
                    natural logarithm, log(8, 2) has a base. Also abs, ceil, floor, min, max, sum,
                    exp, ln, log2, log10, cbrt, hypot, gcd, lcm, comb, perm, asin, acos, atan,
                    atan2, sinh, cosh, tanh, degrees; pi, e, tau.
            """
            return await sandbox.call(expression)

        yield tool_from(calculate)
