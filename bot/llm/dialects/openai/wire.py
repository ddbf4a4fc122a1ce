"""The answers of `POST /chat/completions` and `GET /models` of OpenAI-compatible servers.

Reading is lenient where real servers differ: unknown keys are ignored, almost everything may be
missing or null, and a whole answer and one event of a stream are the same shape with `message`
or `delta` inside. Reference: https://platform.openai.com/docs/api-reference/chat
"""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, WrapValidator

from bot.llm.dialects.lenient import Count, Few, Label, Wire, none_if_wrong


def _text_of(content: object) -> object:
    """Content is text, null, or a list of parts of which some are text."""
    if not isinstance(content, list):
        return content
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(text for text in parts if isinstance(text, str))


def _dumped(arguments: object) -> object:
    """Some servers send the arguments as an object instead of its JSON."""
    if isinstance(arguments, dict | list):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments


class FunctionPiece(Wire):
    """Name and arguments of a call, or a piece of them."""

    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_dumped)] = None


class CallPiece(Wire):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: Label = None
    function: FunctionPiece = FunctionPiece()


class ModelMessage(Wire):
    """What the model said; reasoning is not part of the answer and left out."""

    content: Annotated[str | None, BeforeValidator(_text_of)] = None
    tool_calls: Few[CallPiece] | None = None


class Choice(Wire):
    """One answer; only the first is asked for."""

    message: ModelMessage | None = None
    delta: ModelMessage | None = None
    finish_reason: Label = None


class UsageCounts(Wire):
    """Tokens; whoever counts, counts both."""

    prompt_tokens: Count
    completion_tokens: Count


class CompletionEvent(Wire):
    """A whole completion, or one event of a stream."""

    id: Any = None
    choices: Few[Choice] | None = None
    usage: Annotated[UsageCounts | None, WrapValidator(none_if_wrong)] = None
    model: str | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    code: Any = None

    @property
    def failure(self) -> Any:
        """What was said in place of an answer, None where nothing was wrong.

        The last form is that of older vLLM: `{"object": "error", "message": ..., "code": ...}`.
        """
        if self.error:
            return self.error
        if self.object == "error":
            return {"message": self.message, "code": self.code}
        return None


Names = Annotated[tuple[str, ...] | None, WrapValidator(none_if_wrong)]


class Architecture(Wire):
    """What a model is, as OpenRouter says it."""

    input_modalities: Names = None


class Capabilities(Wire):
    """What a model can do, as Mistral says it."""

    vision: Annotated[bool | None, WrapValidator(none_if_wrong)] = None


class ModelEntry(Wire):
    """One model that the endpoint offers; what it takes is said by some, and each its own way."""

    id: str
    input_modalities: Names = None
    architecture: Annotated[Architecture | None, WrapValidator(none_if_wrong)] = None
    capabilities: Annotated[Capabilities | None, WrapValidator(none_if_wrong)] = None

    @property
    def sees_images(self) -> bool | None:
        """Whether it takes images; None where that is not said."""
        nested = self.architecture.input_modalities if self.architecture is not None else None
        modalities = self.input_modalities or nested
        if modalities is not None:
            return "image" in modalities
        return self.capabilities.vision if self.capabilities is not None else None


class ModelList(Wire):
    """Answer of `GET /models`."""

    data: tuple[ModelEntry, ...] = ()
