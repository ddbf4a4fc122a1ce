"""From the events of an answer of Gemini's to a `Completion`."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bot.llm.assembly import Assembly, label
from bot.llm.dialects.gemini.signatures import kept_signatures
from bot.llm.dialects.gemini.wire import Candidate, Generated, Part, UsageMetadata
from bot.llm.errors import LlmBroken
from bot.llm.failures import error_inside_answer
from bot.llm.framing import Event, ServerSentEvents, WholeDocument
from bot.llm.messages import CUT_OFF, Completion, Usage
from bot.llm.stream import AnswerStream
from tools.schema import from_gemini_name

CONTENT_FILTER: Final = "content_filter"
FINISH_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "STOP": "stop",
        "MAX_TOKENS": CUT_OFF,
        **dict.fromkeys(
            (
                *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
                *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT"),
            ),
            CONTENT_FILTER,
        ),
    }
)
BROKEN_CALLS: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE",
        "MALFORMED_RESPONSE",
    }
)
"""The model wrote something that the API could not read: another try may fare better."""


def event_stream(of: str) -> AnswerStream:
    """Return what reads an answer that comes as server-sent events."""
    return AnswerStream(ServerSentEvents(), GeneratedContent(of))


def whole_document(of: str) -> AnswerStream:
    """Return what reads an answer that comes as one JSON document."""
    return AnswerStream(WholeDocument(), GeneratedContent(of))


class GeneratedContent:
    """An answer in the making. Implements `bot.llm.stream.Answer`.

    Args:
        of: the model, as the owner of what is kept of its answer.
    """

    def __init__(self, of: str) -> None:
        self._of = of
        self._assembly = Assembly()
        self._signatures: list[str | None] = []
        self.completion_id = ""

    @property
    def done(self) -> bool:
        """Whether it has ended and is counted: the last event says both."""
        return bool(self._assembly.finish_reason) and self._assembly.usage is not None

    def add(self, event: Event) -> None:
        """Take an event, or the whole document.

        Raises:
            LlmError: it is none, or an error, or the answer outgrows its bounds.
        """
        said = _parsed(event)
        if said.error:
            raise error_inside_answer(said.error)
        self.completion_id = self.completion_id or label(said.responseId)
        if said.modelVersion:
            self._assembly.model = label(said.modelVersion)
        if said.usageMetadata is not None:
            self._count(said.usageMetadata)
        if said.promptFeedback is not None and said.promptFeedback.blockReason:
            self._assembly.finish_reason = CONTENT_FILTER
        if said.candidates:
            self._take(said.candidates[0])

    def completion(self) -> Completion:
        """Return the answer; LlmBroken when it broke off, or when there is none at all."""
        if not self._assembly.finish_reason:
            raise LlmBroken("The endpoint's answer broke off.")
        return self._assembly.completion(kept_signatures(self._of, self._signatures))

    def _take(self, candidate: Candidate) -> None:
        for part in (candidate.content.parts or ()) if candidate.content is not None else ():
            self._take_part(part)
        reason = candidate.finishReason
        if reason in BROKEN_CALLS:
            raise LlmBroken("The model wrote a tool call that its API could not read.")
        if reason:
            self._assembly.finish_reason = FINISH_REASONS.get(reason, label(reason).lower())

    def _take_part(self, part: Part) -> None:
        if part.functionCall is not None:
            call = self._assembly.begin_call()
            arguments = json.dumps(part.functionCall.args or {}, ensure_ascii=False)
            call.add(name=from_gemini_name(part.functionCall.name), arguments=arguments)
            # Calls without a name are dropped, and so is what was signed for them.
            if call.name:
                self._signatures.append(part.thoughtSignature)
        elif part.text and not part.thought:
            self._assembly.add_text(part.text)

    def _count(self, counts: UsageMetadata) -> None:
        prompt = (counts.promptTokenCount or 0) + (counts.toolUsePromptTokenCount or 0)
        written = (counts.candidatesTokenCount or 0) + (counts.thoughtsTokenCount or 0)
        self._assembly.usage = Usage(prompt, written)


def _parsed(data: Event) -> Generated:
    try:
        return Generated.model_validate_json(data)
    except (ValueError, RecursionError):
        # A validation error is a ValueError too. `from None`: it quotes what the model wrote.
        raise LlmBroken("The endpoint's answer could not be understood.") from None
