"""From the events of a message to a `Completion`."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from bot.llm.assembly import Assembly, CallInTheMaking, label
from bot.llm.dialects.anthropic.wire import Block, Delta, Event, UsageCounts, WholeMessage
from bot.llm.dialects.kept import KeptParts, Thought
from bot.llm.errors import LlmBroken, LlmError
from bot.llm.failures import error_inside_answer
from bot.llm.framing import Event as EventBytes
from bot.llm.framing import ServerSentEvents, WholeDocument
from bot.llm.messages import CUT_OFF, Completion, Usage
from bot.llm.stream import AnswerStream

FINISH_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": CUT_OFF,
        "model_context_window_exceeded": CUT_OFF,
        "pause_turn": CUT_OFF,  # the model wants to be asked to go on
        "refusal": "content_filter",
    }
)
STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "invalid_request_error": 400,
        "authentication_error": 401,
        "billing_error": 402,
        "permission_error": 403,
        "not_found_error": 404,
        "request_too_large": 413,
        "rate_limit_error": 429,
        "api_error": 500,
        "timeout_error": 504,
        "overloaded_error": 529,
    }
)
"""An error inside an answer says its type alone."""


def event_stream(of: str) -> AnswerStream:
    """Return what reads an answer that comes as server-sent events."""
    return AnswerStream(ServerSentEvents(), MessageInTheMaking(of))


def whole_document(of: str) -> AnswerStream:
    """Return what reads an answer that comes as one JSON document."""
    return AnswerStream(WholeDocument(), MessageInTheMaking(of))


class MessageInTheMaking:
    """A message of which parts have come. Implements `bot.llm.stream.Answer`.

    Args:
        of: the model, as the owner of what is kept of its answer.
    """

    def __init__(self, of: str) -> None:
        self._of = of
        self._assembly = Assembly()
        self._kept = KeptParts()
        self._by_index: dict[int | None, CallInTheMaking | Thought] = {}
        self._counts = UsageCounts()
        self._begun = False
        self.done = False
        self.completion_id = ""

    def add(self, event: EventBytes) -> None:
        """Take an event, or the whole message.

        Raises:
            LlmError: it is none, or an error, or the answer outgrows its bounds.
        """
        said = _parsed(event)
        match said.type:
            case "error":
                raise _failure(said.error)
            case "message":
                self._take_message(said)
                self.done = True
            case "message_start":
                self._take_message(said.message or WholeMessage())
            case "content_block_start" if said.content_block is not None:
                self._begin(said.index, said.content_block)
            case "content_block_delta" if said.delta is not None:
                self._go_on(said.index, said.delta)
            case "message_delta":
                self._end(said.delta.stop_reason if said.delta is not None else None)
                self._count(said.usage)
            case "message_stop":
                self.done = True

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it broke off, or when there is none at all."""
        if not self._begun:
            raise LlmBroken("The endpoint's answer holds no message.")
        if not (self.done or self._assembly.finish_reason):
            raise LlmBroken("The endpoint's answer broke off.")
        return self._assembly.completion(self._kept.state(self._of, _thinking_block))

    def _take_message(self, message: WholeMessage) -> None:
        self._begun = True
        self.completion_id = self.completion_id or label(message.id)
        self._assembly.model = label(message.model)
        for index, block in enumerate(message.content):
            self._begin(index, block)
        self._end(message.stop_reason)
        self._count(message.usage)

    def _begin(self, index: int | None, block: Block) -> None:
        match block.type:
            case "text":
                self._add_text(block.text)
            case "tool_use":
                call = self._by_index[index] = self._assembly.begin_call()
                self._kept.note_call()
                arguments = json.dumps(block.input, ensure_ascii=False) if block.input else ""
                call.add(id_=block.id, name=block.name, arguments=arguments)
            case "thinking" | "redacted_thinking":
                thought = self._by_index[index] = self._kept.begin_thought()
                self._kept.add(thought.text, block.thinking)
                self._kept.add(thought.signature, block.signature)
                self._kept.add(thought.sealed, block.data)

    def _go_on(self, index: int | None, delta: Delta) -> None:
        self._add_text(delta.text)
        match self._by_index.get(index):
            case CallInTheMaking() as call if delta.partial_json:
                call.add(arguments=delta.partial_json)
            case Thought() as thought:
                self._kept.add(thought.text, delta.thinking)
                self._kept.add(thought.signature, delta.signature)

    def _add_text(self, text: str | None) -> None:
        if text:
            self._assembly.add_text(text)
            self._kept.note_text(text)

    def _end(self, stop_reason: str | None) -> None:
        if stop_reason:
            self._assembly.finish_reason = FINISH_REASONS.get(stop_reason, label(stop_reason))

    def _count(self, counts: UsageCounts | None) -> None:
        """Take counts, which go on from those before; what one event leaves out, another says."""
        if counts is None:
            return
        self._counts = self._counts.model_copy(update=counts.model_dump(exclude_none=True))
        now = self._counts
        if now.input_tokens is not None and now.output_tokens is not None:
            cached = (now.cache_creation_input_tokens or 0) + (now.cache_read_input_tokens or 0)
            self._assembly.usage = Usage(now.input_tokens + cached, now.output_tokens)


def _parsed(data: EventBytes) -> Event:
    try:
        return Event.model_validate_json(data)
    except (ValueError, RecursionError):
        # A validation error is a ValueError too. `from None`: it quotes what the model wrote.
        raise LlmBroken("The endpoint's answer could not be understood.") from None


def _failure(error: Any) -> LlmError:
    status = STATUSES.get(str(error.get("type"))) if isinstance(error, dict) else None
    return error_inside_answer(error if status is None else {**error, "code": status})


def _thinking_block(thought: Thought) -> dict[str, str] | None:
    """Return reasoning as the API takes it back: only what it has signed or encrypted."""
    if thought.sealed:
        return {"type": "redacted_thinking", "data": "".join(thought.sealed)}
    if not thought.signature:
        return None
    said = {"thinking": "".join(thought.text), "signature": "".join(thought.signature)}
    return {"type": "thinking", **said}
