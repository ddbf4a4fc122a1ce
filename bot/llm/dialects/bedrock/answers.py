"""From the events of a conversation with Bedrock to a `Completion`."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from bot.llm.assembly import Assembly, CallInTheMaking, label
from bot.llm.dialects.bedrock.event_stream import EventStream
from bot.llm.dialects.bedrock.wire import Block, Event, Failure, Reasoning, TokenUsage, ToolUse
from bot.llm.dialects.kept import KeptParts, Thought
from bot.llm.errors import LlmBroken, LlmError
from bot.llm.failures import error_inside_answer
from bot.llm.framing import Event as EventBytes
from bot.llm.framing import WholeDocument
from bot.llm.messages import CUT_OFF, Completion, Usage
from bot.llm.stream import AnswerStream

FINISH_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": CUT_OFF,
        "model_context_window_exceeded": CUT_OFF,
        "guardrail_intervened": "content_filter",
        "content_filtered": "content_filter",
    }
)
STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "validationException": 400,
        "modelTimeoutException": 408,
        "throttlingException": 429,
        "internalServerException": 500,
        "serviceUnavailableException": 503,
    }
)
"""Of exceptions in a stream. What is not here is an answer that broke, which is tried again."""


def event_stream(of: str) -> AnswerStream:
    """Return what reads an answer that comes as an event stream."""
    return AnswerStream(EventStream(), ConverseAnswer(of))


def whole_document(of: str) -> AnswerStream:
    """Return what reads an answer that comes as one JSON document."""
    return AnswerStream(WholeDocument(), ConverseAnswer(of))


class ConverseAnswer:
    """An answer in the making. Implements `bot.llm.stream.Answer`.

    Args:
        of: the model, as the owner of what is kept of its answer.
    """

    completion_id = ""

    def __init__(self, of: str) -> None:
        self._of = of
        self._assembly = Assembly()
        self._kept = KeptParts()
        self._by_index: dict[int, CallInTheMaking | Thought] = {}
        self._begun = False
        self.done = False

    def add(self, event: EventBytes) -> None:
        """Take an event, or the whole answer.

        Raises:
            LlmError: it is none, or an error, or the answer outgrows its bounds.
        """
        said = parsed(event)
        if said.exception is not None:
            raise _failure(said.exception)
        self._begun = self._begun or said.message_start is not None
        if (start := said.content_block_start) is not None:
            self._take(start.content_block_index, start.start)
        if (going_on := said.content_block_delta) is not None:
            self._take(going_on.content_block_index, going_on.delta)
        if said.message_stop is not None:
            self._end(said.message_stop.stop_reason)
        if said.metadata is not None:
            self._count(said.metadata.usage)
            self.done = bool(self._assembly.finish_reason)
        if said.output is not None:
            self._begun = self.done = True
            for index, block in enumerate(said.output.message.content):
                self._take(index, block)
            self._end(said.stop_reason)
            self._count(said.usage)

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it broke off, or when there is none at all."""
        if not self._begun:
            raise LlmBroken("The endpoint's answer holds no message.")
        if not (self.done or self._assembly.finish_reason):
            raise LlmBroken("The endpoint's answer broke off.")
        return self._assembly.completion(self._kept.state(self._of, _reasoning_block))

    def _take(self, index: int, block: Block) -> None:
        if block.text:
            self._assembly.add_text(block.text)
            self._kept.note_text(block.text)
        if block.tool_use is not None:
            self._take_call(index, block.tool_use)
        if block.reasoning_content is not None:
            self._take_reasoning(index, block.reasoning_content)

    def _take_call(self, index: int, piece: ToolUse) -> None:
        call = self._by_index.get(index)
        if not isinstance(call, CallInTheMaking):
            call = self._by_index[index] = self._assembly.begin_call()
            self._kept.note_call()
        whole = piece.input if isinstance(piece.input, dict) and piece.input else None
        arguments = json.dumps(whole, ensure_ascii=False) if whole else ""
        if isinstance(piece.input, str):
            arguments = piece.input
        call.add(id_=piece.tool_use_id, name=piece.name, arguments=arguments)

    def _take_reasoning(self, index: int, piece: Reasoning) -> None:
        thought = self._by_index.get(index)
        if not isinstance(thought, Thought):
            thought = self._by_index[index] = self._kept.begin_thought()
        said = piece.reasoning_text or piece
        self._kept.add(thought.text, said.text)
        self._kept.add(thought.signature, said.signature)
        self._kept.add(thought.sealed, piece.redacted_content)

    def _end(self, stop_reason: str | None) -> None:
        reason = stop_reason or "end_turn"
        self._assembly.finish_reason = FINISH_REASONS.get(reason, label(reason))

    def _count(self, usage: TokenUsage | None) -> None:
        if usage is not None:
            cached = (usage.cache_read_input_tokens or 0) + (usage.cache_write_input_tokens or 0)
            self._assembly.usage = Usage(usage.input_tokens + cached, usage.output_tokens)


def parsed(data: EventBytes) -> Event:
    """Return an event, or a whole answer; LlmBroken if it is neither."""
    try:
        return Event.model_validate_json(data)
    except (ValueError, RecursionError):
        # A validation error is a ValueError too. `from None`: it quotes what the model wrote.
        raise LlmBroken("The endpoint's answer could not be understood.") from None


def _failure(failure: Failure) -> LlmError:
    message = failure.said.get("message") if isinstance(failure.said, dict) else None
    said = {"type": failure.type, "message": message, "code": STATUSES.get(failure.type)}
    return error_inside_answer(said)


def _reasoning_block(thought: Thought) -> dict[str, Any] | None:
    """Return reasoning as the API takes it back: only what is signed or encrypted."""
    if thought.sealed:
        return {"reasoningContent": {"redactedContent": "".join(thought.sealed)}}
    if not thought.signature:
        return None
    said = {"text": "".join(thought.text), "signature": "".join(thought.signature)}
    return {"reasoningContent": {"reasoningText": said}}
