"""What a model is told besides messages, and what it answers: free of the wire's spelling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bot.llm.attested import Exchange
from conversation_store.models import Message

CUT_OFF: Final = "length"
"""The finish reason of an answer that ended at the limit of tokens, in every dialect."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What the model is asked.

    Attributes:
        messages: the conversation, oldest first.
        tools: what the model is told that it may call; none are offered when empty.
        may_call: whether it may call them in this answer. Where it may not, they are sent all the
            same, so that the request begins like the one before and can be cached.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    may_call: bool = True


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, as the endpoint counted them, or estimated."""

    prompt_tokens: int
    completion_tokens: int
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's whole answer to one request.

    Attributes:
        message: role `assistant`; content None or text, with its tool calls.
        finish_reason: why it stopped, in OpenAI's words (`stop`, `length`, `tool_calls`,
            `content_filter`, ...); empty when the endpoint said nothing.
        usage: None when the endpoint counted nothing.
        model: what the endpoint says answered.
        exchange: hashes of the bytes that went and came, None where the end of the body or the
            endpoint's name for the answer is missing.
        earlier: answers to other requests that it took to get this one, oldest first.
    """

    message: Message
    finish_reason: str
    usage: Usage | None
    model: str
    exchange: Exchange | None = None
    earlier: "tuple[Completion, ...]" = ()
