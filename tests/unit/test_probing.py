"""Which tools are withdrawn before a model calls them."""

from dataclasses import replace

import pytest

from tools.base import ToolError
from tools.registry import Registry, probe
from tools.sandbox.errors import ToolUnavailable
from tools.schema import tool_from


async def look_up() -> str:
    """Look something up."""
    return "found"


def registry_of(failure: Exception | None) -> Registry:
    async def find_out() -> None:
        if failure is not None:
            raise failure

    return Registry([replace(tool_from(look_up), name="other"), tool_from(look_up, probe=find_out)])


async def test_only_the_unusable_tool_is_withdrawn_with_its_reason() -> None:
    registry = registry_of(ToolUnavailable("The key is refused."))
    await probe(registry)
    assert [tool.name for tool in registry.tools] == ["other"]
    assert registry.absent == {"look_up": "The key is refused."}


@pytest.mark.parametrize("failure", [None, ToolError("It is failing right now."), TimeoutError()])
async def test_tool_with_a_silent_service_stays(failure: Exception | None) -> None:
    registry = registry_of(failure)
    await probe(registry)
    assert [tool.name for tool in registry.tools] == ["look_up", "other"]
    assert registry.absent == {}
