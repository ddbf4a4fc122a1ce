"""Which tools there are, and in what order."""

import pytest

from tools.base import Tool
from tools.catalog import CATALOG, open_tools
from tools.registry import Registry
from tools.schema import tool_from
from tools.settings import ToolsSettings


def tool(name: str) -> Tool:
    async def act() -> str:
        """Do something."""
        return name

    act.__name__ = name
    return tool_from(act)


def test_tools_are_sorted_by_name_and_found_by_their_exact_name_only() -> None:
    registry = Registry([tool("weather"), tool("calculate"), tool("search")])
    assert [found.name for found in registry.tools] == ["calculate", "search", "weather"]
    assert registry.get("calculate") is not None
    assert registry.get("Calculate") is None


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named search"):
        Registry([tool("search"), tool("search")])


async def test_catalog_offers_the_enabled_tools() -> None:
    async with open_tools(ToolsSettings()) as registry:
        assert {found.name for found in registry.tools} | set(registry.absent) == set(CATALOG)
    async with open_tools(ToolsSettings(disabled=frozenset(CATALOG))) as registry:
        assert len(registry.tools) == 0
