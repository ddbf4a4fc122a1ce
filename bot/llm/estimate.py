"""How many tokens something takes, where nobody has counted them."""

import json
from collections.abc import Sequence
from typing import Final

from bot.llm.messages import Completion, ModelRequest, Usage
from conversation_store.models import Message, Role

BYTES_PER_TOKEN: Final = 3
"""A careful estimate: English needs about 4 bytes for a token, other scripts and JSON fewer."""

IMAGE_TOKENS: Final = 1_500
"""What an image of the size that is sent takes; models that cut it into tiles count about so."""


def estimated_usage(request: ModelRequest, answer: Completion) -> Usage:
    """Return about how many tokens a request and its answer took."""
    told = sum(map(_tokens, request.messages))
    tools = sum(
        len(tool.name) + len(tool.description) + len(json.dumps(tool.parameters))
        for tool in request.tools
    )
    return Usage(told + tools // BYTES_PER_TOKEN, _tokens(answer.message), is_estimated=True)


def estimated_so_far(messages: Sequence[Message]) -> int:
    """Return about how many tokens a conversation has taken: each answer has read all before it."""
    taken = read = 0
    for message in messages:
        read += _tokens(message)
        taken += read if message.role is Role.ASSISTANT else 0
    return taken


def _tokens(message: Message) -> int:
    said = len((message.content or "").encode(errors="replace"))
    called = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return (said + called) // BYTES_PER_TOKEN + len(message.images) * IMAGE_TOKENS
