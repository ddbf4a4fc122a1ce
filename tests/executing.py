"""Calls of tools with doubles of the audit and of the person."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tools.base import Consent, Decision, Tool, ToolRequest, ToolResult
from tools.executor import RateLimits, ToolExecutor
from tools.question import CallQuestion
from tools.registry import Registry
from tools.settings import MAX_RESULT_BYTES

PLENTY: Final = 100_000


class Results(list[ToolResult]):
    """Audit that keeps its records in order: the start of a call, then its result."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[ToolRequest] = []

    async def starting(self, request: ToolRequest) -> None:
        self.started.append(request)

    async def finished(self, result: ToolResult) -> None:
        self.append(result)


class Person:
    """Person who is asked before a call; says no by default."""

    def __init__(self, decision: Decision = Decision.NO) -> None:
        self.decision = decision
        self.questions: list[str] = []
        self.consents: list[Consent] = []

    async def ask(self, request: ToolRequest, question: CallQuestion) -> Decision:
        self.questions.append(question.text())
        self.consents.append(request.consent)
        return self.decision


def an_executor(
    tools: Iterable[Tool] | Registry,
    *,
    timeout_seconds: float = 10,
    result_limit_bytes: int = MAX_RESULT_BYTES,
) -> ToolExecutor:
    """Return an executor without a rate limit for persons."""
    return ToolExecutor(
        tools if isinstance(tools, Registry) else Registry(tools),
        limits=RateLimits(per_person=PLENTY, per_bot=PLENTY),
        timeout_seconds=timeout_seconds,
        result_limit_bytes=result_limit_bytes,
    )


def often(tool: Tool) -> Tool:
    """Return a tool that may be called as often as a test likes."""
    return replace(tool, calls_per_minute=PLENTY)


async def run_call(
    executor: ToolExecutor,
    request: ToolRequest,
    audit: Results | None = None,
    person: Person | None = None,
) -> ToolResult:
    """Run a call; without a person, every question gets a no."""
    audit = Results() if audit is None else audit
    person = Person() if person is None else person
    return await executor.execute(
        request, ask=person.ask, starting=audit.starting, finished=audit.finished
    )
