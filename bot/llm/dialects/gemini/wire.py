"""What Gemini answers, as far as it is read."""

from typing import Annotated, Any

from pydantic import WrapValidator

from bot.llm.dialects.lenient import Count, Few, Label, Wire, none_if_wrong

LenientCount = Annotated[Count | None, WrapValidator(none_if_wrong)]


class FunctionCall(Wire):
    """What is called, and with what; always whole."""

    name: str
    args: dict[str, Any] | None = None


class Part(Wire):
    """A piece of an answer: words, or a call; `thought` marks reasoning."""

    text: str | None = None
    thought: bool = False
    functionCall: FunctionCall | None = None  # noqa: N815 - as the API spells it
    thoughtSignature: str | None = None  # noqa: N815


class Content(Wire):
    """What the model says."""

    parts: Few[Part] | None = None


class Candidate(Wire):
    """One answer; only the first is asked for."""

    content: Content | None = None
    finishReason: Label = None  # noqa: N815


class PromptFeedback(Wire):
    """Why a question is not answered at all."""

    blockReason: Label = None  # noqa: N815


class UsageMetadata(Wire):
    """Tokens so far; what a model thinks is counted apart."""

    promptTokenCount: LenientCount = None  # noqa: N815
    toolUsePromptTokenCount: LenientCount = None  # noqa: N815
    candidatesTokenCount: LenientCount = None  # noqa: N815
    thoughtsTokenCount: LenientCount = None  # noqa: N815


class Generated(Wire):
    """One event of an answer, or all of it."""

    candidates: Few[Candidate] | None = None
    promptFeedback: PromptFeedback | None = None  # noqa: N815
    usageMetadata: Annotated[UsageMetadata | None, WrapValidator(none_if_wrong)] = None  # noqa: N815
    modelVersion: Label = None  # noqa: N815
    responseId: Label = None  # noqa: N815
    error: Any = None


class ModelEntry(Wire):
    """One model, called `models/NAME`."""

    name: str


class ModelList(Wire):
    """Answer of `GET /models`."""

    models: tuple[ModelEntry, ...] = ()
