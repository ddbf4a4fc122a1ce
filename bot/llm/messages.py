"""What a model is told besides messages, and what it answers: free of the wire's spelling."""

from collections.abc import Mapping
from dataclasses import dataclass

from bot.llm.attested import Exchange
from conversation_store.models import Message


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, as the endpoint counted them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's whole answer to one request.

    Attributes:
        message: role `assistant`; content None or text, with its tool calls.
        finish_reason: why it stopped, as the endpoint said it (`stop`, `length`, `tool_calls`,
            `content_filter`, ...); empty when it said nothing.
        usage: None when the endpoint counted nothing.
        model: what the endpoint says answered.
        exchange: hashes of the bytes that went and came, None where the end of the body or the
            endpoint's name for the answer is missing.
    """

    message: Message
    finish_reason: str
    usage: Usage | None
    model: str
    exchange: Exchange | None = None
