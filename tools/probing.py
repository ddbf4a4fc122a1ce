"""Finds out which tools cannot work, before a model calls them."""

import asyncio
from typing import Final

from tools.base import Tool
from tools.errors import ToolError, ToolUnavailable
from tools.registry import Registry

PROBE_SECONDS: Final = 15.0


async def probe(registry: Registry) -> None:
    """Withdraw the tools that cannot work; one whose service does not answer now stays."""
    async with asyncio.TaskGroup() as tasks:
        for tool in registry:
            if tool.probe is not None:
                tasks.create_task(_probe(registry, tool))


async def _probe(registry: Registry, tool: Tool) -> None:
    if tool.probe is None:
        return
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await tool.probe()
    except ToolUnavailable as error:
        registry.withdraw(tool.name, str(error))
    except (ToolError, TimeoutError):
        return
