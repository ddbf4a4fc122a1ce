"""The tools there are, in a fixed order, so that an endpoint can cache the prompt they are in."""

from collections.abc import Iterable, Iterator

from tools.base import Tool


class Registry:
    """Tools by name, in the order of their names.

    Args:
        tools: what there is.

    Raises:
        ValueError: two tools have one name.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in sorted(tools, key=lambda tool: tool.name):
            if tool.name in self._tools:
                raise ValueError(f"two tools are named {tool.name}")
            self._tools[tool.name] = tool

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, None when there is none."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
