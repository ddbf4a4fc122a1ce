"""What is said to a model and what it answers: frozen values, free of the wire's spelling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bot.llm.attested import Exchange


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the model's text, not always JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that a user message shows; the wire takes it as a data URL."""

    content_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: who speaks.
        content: the words; None where an assistant only calls tools.
        tool_calls: what an assistant asks to be called.
        tool_call_id: for role `tool`, the call that this is the result of.
        images: for role `user`, what is shown after the words.
    """

    role: Role
    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[Image, ...] = ()


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
