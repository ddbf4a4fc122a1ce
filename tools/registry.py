"""The tools there are, in a fixed order, so that an endpoint can cache the prompt they are in.

Tools come from sources: each built-in tool is one, each MCP server another. A source that cannot
work takes away its own tools only, and the reason is kept for whoever asks.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import structlog

from tools.base import Caller, Tool

log = structlog.get_logger()


class Registry:
    """Tools by name, in the order of their names; it may change while the bot runs.

    Args:
        tools: offered from the start, each as a source of its own name.

    Raises:
        ValueError: two tools have one name.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._sources: dict[str, tuple[Tool, ...]] = {}
        self._absent: dict[str, str] = {}
        self._remarks: dict[str, str] = {}
        self._expected: set[str] = set()
        self._settled = asyncio.Event()
        self._settled.set()
        self._tools: dict[str, Tool] = {}
        self._listed: tuple[Tool, ...] = ()
        self._for_admins: tuple[Tool, ...] = ()
        self._for_everybody: tuple[Tool, ...] = ()
        for tool in tools:
            if tool.name in self._sources:
                raise ValueError(f"two tools are named {tool.name}")
            self.offer(tool.name, (tool,))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools; the same tuple until something changes."""
        return self._listed

    def offered_to(self, caller: Caller) -> tuple[Tool, ...]:
        """Return the tools that exist for a caller.

        It is the same tuple until something changes, unless the caller is confined to some of them.
        """
        offered = self._for_admins if caller.is_admin else self._for_everybody
        if caller.tools is None:
            return offered
        return tuple(tool for tool in offered if tool.exists_for(caller))

    @property
    def absent(self) -> Mapping[str, str]:
        """Sources that cannot work, each with the reason in a sentence for the operator."""
        return MappingProxyType(self._absent)

    @property
    def remarks(self) -> Mapping[str, str]:
        """What is wrong with sources that work otherwise, in sentences for the operator."""
        return MappingProxyType(self._remarks)

    def offered_by(self, source: str) -> tuple[Tool, ...] | None:
        """Return a source's tools; None as long as nothing is known of it."""
        return self._sources.get(source)

    def source_of(self, name: str) -> str:
        """Return the source that offers a tool; its own name where none does."""
        return next(
            (
                source
                for source, tools in self._sources.items()
                if any(tool.name == name for tool in tools)
            ),
            name,
        )

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, None when there is none."""
        return self._tools.get(name)

    def get_for(self, caller: Caller, name: str) -> Tool | None:
        """Return the tool that a caller knows by that name, None when there is none."""
        tool = self._tools.get(name)
        if tool is None or not tool.exists_for(caller):
            return None
        return _for_admins(tool) if caller.is_admin else tool

    def offer(self, source: str, tools: Iterable[Tool], remark: str = "") -> None:
        """Offer a source's tools in place of those it had.

        Args:
            source: a built-in tool's name, or that of a server.
            tools: each with a name that no other source has.
            remark: what the operator should know about them.

        Raises:
            ValueError: a name is taken; nothing is changed.
        """
        sources = {**self._sources, source: tuple(tools)}
        by_name: dict[str, Tool] = {}
        for tool in sorted(
            (tool for offered in sources.values() for tool in offered), key=lambda tool: tool.name
        ):
            if tool.name in by_name:
                raise ValueError(f"two tools are named {tool.name}")
            by_name[tool.name] = tool
        self._sources, self._tools, self._listed = sources, by_name, tuple(by_name.values())
        self._for_admins = tuple(map(_for_admins, self._listed))
        everybody = tuple(tool for tool in self._listed if not tool.admins_only)
        # Where nothing differs it is the same tuple, which is declared to the model once.
        self._for_everybody = self._for_admins if everybody == self._for_admins else everybody
        self._absent.pop(source, None)
        self._remarks.pop(source, None)
        if remark:
            self._remarks[source] = remark
        self._is_known(source)

    def withdraw(self, source: str, reason: str) -> None:
        """Take a source's tools away and log why; the reason is one sentence, with no secret."""
        if self._absent.get(source) != reason:
            log.warning("tool.unavailable", tool=source, reason=reason)
        self.offer(source, ())
        self._absent[source] = reason

    def expect(self, source: str) -> None:
        """Say that a source will soon be offered or withdrawn; see `settled`."""
        self._expected.add(source)
        self._settled.clear()

    async def settled(self) -> None:
        """Wait until every expected source was offered or withdrawn once."""
        await self._settled.wait()

    def _is_known(self, source: str) -> None:
        self._expected.discard(source)
        if not self._expected:
            self._settled.set()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


def _for_admins(tool: Tool) -> Tool:
    return tool.for_admins or tool
