"""Questions to models and their answers, independent of any API."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from conversation_store.models import Message, NewExchange, Role, TokenSum
from tools.base import ToolSpec

CUT_OFF: Final = "length"
"""The finish reason of an answer that ended at the limit of tokens, for every API."""
BYTES_PER_TOKEN: Final = 3
"""A careful estimate: English has about 4 bytes per token, other scripts and JSON fewer."""
IMAGE_TOKENS: Final = 1_500
"""A careful estimate for an image of the size that is sent."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A question to a model.

    Attributes:
        may_call: whether the model may call tools in this answer. They are sent either way, so
            that the request begins like the previous one and can be cached.
    """

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    may_call: bool = True


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's whole answer to one request.

    Attributes:
        finish_reason: in OpenAI's words (`stop`, `length`, `tool_calls`, `content_filter`, ...);
            empty if the endpoint gave none.
        model: the name of the model according to the endpoint.
        exchange: hashes of both complete bodies; None if the end of the answer's body or the
            answer's id is missing.
        earlier: answers to other requests that were needed to get this one, oldest first.
    """

    message: Message
    finish_reason: str
    usage: TokenSum | None
    model: str
    exchange: NewExchange | None = None
    earlier: "tuple[Completion, ...]" = ()


def estimated_usage(request: ModelRequest, answer: Completion | None = None) -> TokenSum:
    """Estimate the tokens of a request and its answer; without an answer, it was cancelled."""
    told = sum(map(_tokens, request.messages))
    tools = sum(tool.size for tool in request.tools)
    said = 0 if answer is None else _tokens(answer.message)
    return TokenSum(told + tools // BYTES_PER_TOKEN, said, is_estimated=True)


def estimated_so_far(messages: Sequence[Message]) -> int:
    """Estimate the tokens that a conversation took: for each answer, all text before it."""
    taken = read = 0
    for message in messages:
        read += _tokens(message)
        taken += read if message.role is Role.ASSISTANT else 0
    return taken


def _tokens(message: Message) -> int:
    said = len((message.content or "").encode(errors="replace"))
    called = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return (said + called) // BYTES_PER_TOKEN + len(message.images) * IMAGE_TOKENS
