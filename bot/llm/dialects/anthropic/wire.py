"""The answers of `POST /v1/messages` and `GET /v1/models`.

A whole message and an event of a stream are one shape here. Unknown types of events, blocks and
deltas are to be ignored: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from typing import Annotated, Any

from pydantic import WrapValidator

from bot.llm.dialects.lenient import Count, Few, Label, Wire, none_if_wrong


class Block(Wire):
    """A part of a message, or its beginning."""

    type: str
    text: str | None = None
    id: Label = None
    name: str | None = None
    input: Any = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class Delta(Wire):
    """What goes on with a block, or ends the message."""

    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: Label = None


class UsageCounts(Wire):
    """Tokens so far. What was read from the cache, or put there, is not among the input."""

    input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    output_tokens: Count | None = None


Usage = Annotated[UsageCounts | None, WrapValidator(none_if_wrong)]


class WholeMessage(Wire):
    """A message, or what is known of it at its beginning."""

    id: Label = None
    model: Label = None
    content: Few[Block] = ()
    stop_reason: Label = None
    usage: Usage = None


class Event(WholeMessage):
    """A whole message, or one event of a stream."""

    type: str
    index: int | None = None
    message: WholeMessage | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    error: Any = None


class Support(Wire):
    """Whether a model can do something."""

    supported: bool | None = None


class Capabilities(Wire):
    """What a model can do."""

    image_input: Support | None = None


class ModelEntry(Wire):
    """A model that the endpoint offers."""

    id: str
    capabilities: Annotated[Capabilities | None, WrapValidator(none_if_wrong)] = None

    @property
    def sees_images(self) -> bool | None:
        """Whether it takes images; None where that is not said."""
        image_input = self.capabilities.image_input if self.capabilities is not None else None
        return image_input.supported if image_input is not None else None


class ModelList(Wire):
    """Answer of `GET /v1/models`."""

    data: tuple[ModelEntry, ...] = ()
