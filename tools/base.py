"""What a tool is: a name, a description, typed arguments and a coroutine."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. Made by `tools.schema.tool_from`.

    Attributes:
        name: what the model calls it, `[a-z_]+`.
        description: what it does, for the model.
        arguments: parses and validates what the model sends.
        parameters: the JSON Schema of the arguments that the model is shown.
        run: does the work; raises ToolError for an expected failure.
        side_effects: it changes something outside; then it is never run a second time by itself.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    parameters: Mapping[str, object]
    run: Callable[[Any], Awaitable[str]]
    side_effects: bool = False


def first_sentence(description: str) -> str:
    """Return the part of a description that fits on one line."""
    return description.split(". ", maxsplit=1)[0].rstrip(".") + "."


class Outcome(StrEnum):
    """How a call ended; also the label of metrics and audit rows."""

    OK = "ok"
    FAILED = "failed"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    BUG = "bug"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call as it reaches the executor; `arguments` is the model's text, not always JSON."""

    call_id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended and what the model reads of it."""

    request: ToolRequest
    outcome: Outcome
    content: str
    duration_seconds: float
