"""Which tools this program has. A new tool is a file of its own and one entry here."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from tools.calculator.tool import open_calculator
from tools.registry import Registry


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Which tools are wanted, and what they need."""

    calculator_enabled: bool = True


@asynccontextmanager
async def open_tools(settings: ToolSettings) -> AsyncIterator[Registry]:
    """Provide the wanted tools; what they hold (processes, connections) is closed at the end."""
    async with AsyncExitStack() as resources:
        tools = []
        if settings.calculator_enabled:
            tools.append(await resources.enter_async_context(open_calculator()))
        yield Registry(tools)
