"""What a tool is: a name, a description, typed arguments and a coroutine."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. Made of a function by `tools.schema.tool_from`.

    Attributes:
        name: what the model calls it, `[a-zA-Z0-9_-]{1,64}`.
        description: what it does, for the model.
        parameters: the JSON Schema of the arguments that the model is shown.
        parse: makes arguments of what the model sends; raises InvalidArguments.
        run: does the work with what `parse` returned; raises ToolError for an expected failure.
        side_effects: it writes, runs or spends something: a person is asked before each call, and
            it is never run a second time by itself.
        question: what a call is going to do, for the person who is asked; None lists the arguments.
        untrusted: its results hold what strangers wrote; they are marked as such for the model.
        calls_per_minute: of all people together.
        probe: finds out whether it can work at all; raises ToolUnavailable.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    parse: Callable[[str], Any]
    run: Callable[[Any], Awaitable[str]]
    side_effects: bool = False
    question: Callable[[Any], str] | None = None
    untrusted: bool = False
    calls_per_minute: int = 120
    probe: Callable[[], Awaitable[None]] | None = None


def first_sentence(description: str) -> str:
    """Return the part of a description that fits on one line."""
    return description.split(". ", maxsplit=1)[0].rstrip(".") + "."


class Outcome(StrEnum):
    """How a call ended; also the label of metrics and audit rows."""

    OK = "ok"
    FAILED = "failed"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    RATE_LIMITED = "rate_limited"
    DECLINED = "declined"
    UNANSWERED = "unanswered"
    TIMEOUT = "timeout"
    BUG = "bug"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call as it reaches the executor.

    Attributes:
        call_id: names the call within its turn.
        tool: what the model calls; perhaps no tool at all.
        arguments: the model's text, not always JSON.
        caller: who it is made for, opaque here; the rate of calls is counted by it.
    """

    call_id: str
    tool: str
    arguments: str
    caller: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended and what the model reads of it; the duration is that of the tool's run."""

    request: ToolRequest
    outcome: Outcome
    content: str
    duration_seconds: float
