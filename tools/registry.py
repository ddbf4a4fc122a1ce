"""The offered tools, in a fixed order, so that an endpoint can cache the prompt with them.

Tools come from sources: each built-in tool is one, each MCP server another. A source that cannot
work takes away its own tools only, and the reason is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog

from tools.base import Caller, Tool, ToolError
from tools.sandbox.errors import ToolUnavailable

PROBE_SECONDS: Final = 15.0

log = structlog.get_logger()


class Registry:
    """Tools by name, in the order of their names; it may change while the bot runs.

    Args:
        tools: offered from the start, each as a source of its own name.
        withheld: names of tools that are never offered.

    Attributes:
        tools: all of them; the same tuple until something changes.
        absent: sources that cannot work, each with the reason in a sentence for the operator.
        remarks: sources that work but have a problem, in sentences for the operator.
        last_words: by the name of an MCP server, the end of its standard error, which often says
            why it fails. None discards it: it may hold people's words.
        settled: set once every expected source was offered or withdrawn.

    Raises:
        ValueError: two tools have one name.
    """

    def __init__(
        self, tools: Iterable[Tool] = (), *, withheld: frozenset[str] = frozenset()
    ) -> None:
        self._withheld = withheld
        self._sources: dict[str, tuple[Tool, ...]] = {}
        self.absent: dict[str, str] = {}
        self.remarks: dict[str, str] = {}
        self.last_words: dict[str, bytearray] | None = None
        self._expected: set[str] = set()
        self.settled = asyncio.Event()
        self.settled.set()
        self._by_name: dict[str, Tool] = {}
        self.tools: tuple[Tool, ...] = ()
        self._for_everybody: tuple[Tool, ...] = ()
        for tool in tools:
            if tool.name in self._sources:
                raise ValueError(f"two tools are named {tool.name}")
            self.offer(tool.name, (tool,))

    def offered_to(self, caller: Caller) -> tuple[Tool, ...]:
        """Return the tools that exist for a caller.

        For callers with all tools it is the same tuple until something changes.
        """
        offered = self.tools if caller.is_admin else self._for_everybody
        if caller.tools is None:
            return offered
        return tuple(tool for tool in offered if tool.exists_for(caller))

    def offered_by(self, source: str) -> tuple[Tool, ...] | None:
        """Return a source's tools; None for an unknown source."""
        return self._sources.get(source)

    def source_of(self, name: str) -> str:
        """Return the source that offers a tool, or else the tool's own name."""
        for source, tools in self._sources.items():
            if any(tool.name == name for tool in tools):
                return source
        return name

    def get(self, name: str, caller: Caller | None = None) -> Tool | None:
        """Return the tool with a name, if there is one and it exists for the caller."""
        tool = self._by_name.get(name)
        return tool if tool is not None and (caller is None or tool.exists_for(caller)) else None

    def offer(self, source: str, tools: Iterable[Tool], remark: str = "") -> None:
        """Offer a source's tools in place of those it had.

        Raises:
            ValueError: a name is taken; nothing has changed.
        """
        offered = tuple(tool for tool in tools if tool.name not in self._withheld)
        sources = {**self._sources, source: offered}
        by_name: dict[str, Tool] = {}
        found = (tool for of_source in sources.values() for tool in of_source)
        for tool in sorted(found, key=lambda tool: tool.name):
            if tool.name in by_name:
                raise ValueError(f"two tools are named {tool.name}")
            by_name[tool.name] = tool
        self._sources, self._by_name, self.tools = sources, by_name, tuple(by_name.values())
        everybody = tuple(tool for tool in self.tools if not tool.admins_only)
        # Declarations to the model are made once for each tuple.
        self._for_everybody = self.tools if everybody == self.tools else everybody
        self.absent.pop(source, None)
        self.remarks.pop(source, None)
        if remark:
            self.remarks[source] = remark
        self._expected.discard(source)
        if not self._expected:
            self.settled.set()

    def withdraw(self, source: str, reason: str) -> None:
        """Take a source's tools away and log why; the reason is one sentence, with no secret."""
        if self.absent.get(source) != reason:
            log.warning("tool.unavailable", tool=source, reason=reason)
        self.offer(source, ())
        self.absent[source] = reason

    def expect(self, source: str) -> None:
        """Make `settled` wait for a source."""
        self._expected.add(source)
        self.settled.clear()


async def probe(registry: Registry) -> Mapping[str, str]:
    """Withdraw the tools that cannot work; return a sentence about each other one with a problem.

    A tool whose service does not answer now stays.
    """
    problems: dict[str, str] = {}

    async def ask(name: str, probe: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await probe()
        except ToolUnavailable as error:
            registry.withdraw(name, str(error))
        except ToolError as error:
            problems[name] = str(error)
        except TimeoutError:
            problems[name] = f"Its service did not answer within {PROBE_SECONDS:g} seconds."

    async with asyncio.TaskGroup() as tasks:
        for tool in registry.tools:
            if tool.probe is not None:
                tasks.create_task(ask(tool.name, tool.probe))
    return problems
