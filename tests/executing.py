"""A call of a tool with doubles of the audit and of the person, given as objects."""

from typing import Protocol

from tools.base import Decision, ToolRequest, ToolResult
from tools.executor import ToolExecutor


class Audit(Protocol):
    async def starting(self, request: ToolRequest) -> None: ...

    async def finished(self, result: ToolResult) -> None: ...


class Person(Protocol):
    async def ask(self, request: ToolRequest, question: str) -> Decision: ...


async def run_call(
    executor: ToolExecutor, request: ToolRequest, audit: Audit, person: Person
) -> ToolResult:
    """Run a call."""
    return await executor.execute(
        request, ask=person.ask, starting=audit.starting, finished=audit.finished
    )
