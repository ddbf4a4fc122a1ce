"""Finds out which tools cannot work, before a model calls them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tools.errors import ToolError, ToolUnavailable
from tools.registry import Registry

PROBE_SECONDS: Final = 15.0


async def probe(registry: Registry) -> Mapping[str, str]:
    """Withdraw the tools that cannot work; one whose service does not answer now stays.

    Returns:
        What is the matter with those that stay, in a sentence by the tool's name.
    """
    async with asyncio.TaskGroup() as tasks:
        looks = [
            (tool.name, tasks.create_task(_look(registry, tool.name, tool.probe)))
            for tool in registry
            if tool.probe is not None
        ]
    return {name: trouble for name, look in looks if (trouble := look.result())}


async def _look(registry: Registry, name: str, look: Callable[[], Awaitable[None]]) -> str:
    """Return what is the matter with a tool that stays; empty where nothing is."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await look()
    except ToolUnavailable as error:
        registry.withdraw(name, str(error))
    except ToolError as error:
        return str(error)
    except TimeoutError:
        return f"Its service did not answer within {PROBE_SECONDS:g} seconds."
    return ""
