"""The answers of Converse and ConverseStream; a whole answer and an event are one shape here.

Reference: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
"""

from typing import Annotated, Any

from pydantic import ConfigDict, WrapValidator
from pydantic.alias_generators import to_camel

from bot.llm.dialects.lenient import Count, Few, Label, Wire, none_if_wrong


class _Camel(Wire):
    model_config = ConfigDict(alias_generator=to_camel)


class ToolUse(_Camel):
    """A call, or a piece of one; its input is an object, or a piece of its JSON."""

    tool_use_id: Label = None
    name: str | None = None
    input: Any = None


class ReasoningText(_Camel):
    """Reasoning that can be read."""

    text: str | None = None
    signature: str | None = None


class Reasoning(ReasoningText):
    """Reasoning, or a piece of it: only whole blocks have `reasoning_text`."""

    redacted_content: str | None = None
    reasoning_text: ReasoningText | None = None


class Block(_Camel):
    """A part of a message, or a piece of one: one of these."""

    text: str | None = None
    tool_use: ToolUse | None = None
    reasoning_content: Reasoning | None = None


class BlockStart(_Camel):
    """A part begins."""

    content_block_index: int
    start: Block = Block()


class BlockDelta(_Camel):
    """A part goes on; only calls have had a beginning before."""

    content_block_index: int
    delta: Block = Block()


class MessageStop(_Camel):
    """The message ends."""

    stop_reason: Label = None


class TokenUsage(_Camel):
    """Tokens. What was read from the cache, or put there, is not among the input."""

    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None


Usage = Annotated[TokenUsage | None, WrapValidator(none_if_wrong)]


class Metadata(_Camel):
    """What comes after the message."""

    usage: Usage = None


class WholeMessage(_Camel):
    """A message."""

    content: Few[Block] = ()


class Output(_Camel):
    """What a whole answer says."""

    message: WholeMessage


class Failure(_Camel):
    """An exception in a stream, as `bedrock.event_stream` puts it."""

    type: str = ""
    said: Any = None


class Event(_Camel):
    """A whole answer, or one event of a stream; a new kind of event has none of these."""

    message_start: Any = None
    content_block_start: BlockStart | None = None
    content_block_delta: BlockDelta | None = None
    message_stop: MessageStop | None = None
    metadata: Metadata | None = None
    exception: Failure | None = None
    output: Output | None = None
    stop_reason: Label = None
    usage: Usage = None
