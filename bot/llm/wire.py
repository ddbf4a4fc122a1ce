"""The wire of `POST /chat/completions` and `GET /models`, as OpenAI-compatible servers speak it.

Reading is lenient where real servers differ: unknown keys are ignored, almost everything may be
missing or null, and a whole answer and one event of a stream are the same shape with `message`
or `delta` inside. Reference: https://platform.openai.com/docs/api-reference/chat
"""

import base64
import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticSerializationError, to_json

from bot.llm.attested import Sealing
from bot.llm.images import latest_images
from bot.llm.messages import ToolSpec
from bot.llm.sealed_fields import seal_request
from conversation_store.models import Image, Message, Role, ToolCall

MAX_TOKEN_COUNT: Final = 1_000_000_000
MAX_ENTRIES: Final = 128
"""Choices, or pieces of tool calls, in one event or answer; no endpoint sends a tenth of that."""


class Streaming(IntEnum):
    """How an answer is asked for; an endpoint that refuses one way is asked the next."""

    WITH_USAGE = 0
    PLAIN = 1
    OFF = 2


def request_body(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    streaming: Streaming,
    *,
    may_call: bool = True,
    attested: bool = False,
    sealing: Sealing | None = None,
) -> bytes:
    """Return the JSON of a chat completion request.

    Args:
        model: its name at the endpoint.
        messages: the conversation; of its images the latest are sent, see `latest_images`.
        tools: what the model is told that it may call.
        may_call: whether it may call them in this answer.
        streaming: how the answer is asked for.
        attested: usage is asked for with every piece, because NEAR AI's gateway then passes the
            model's bytes on as they are: the model's own machine signs them, not the gateway.
        sealing: encrypts the words; None leaves them as they are.
    """
    body: Mapping[str, object] = _request(
        model, messages, tools, streaming, may_call=may_call, attested=attested
    )
    if sealing is not None:
        body = seal_request(body, sealing.seal)
    try:
        return to_json(body)  # a fifth of the time of json.dumps
    except PydanticSerializationError:
        # Half a surrogate pair has no UTF-8: it becomes a question mark instead of an error.
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _request(
    model: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    streaming: Streaming,
    *,
    may_call: bool,
    attested: bool,
) -> Mapping[str, object]:
    said = [_message(message) for message in latest_images(messages)]
    body: dict[str, object] = {"model": model, "messages": said}
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
        if not may_call:
            body["tool_choice"] = "none"
    body["stream"] = streaming is not Streaming.OFF
    if streaming is Streaming.WITH_USAGE:
        options = {"include_usage": True}
        if attested:
            options["continuous_usage_stats"] = True
        body["stream_options"] = options
    return body


def _message(message: Message) -> Mapping[str, object]:
    if message.tool_calls:
        calls = [_tool_call(call) for call in message.tool_calls]
        return {"role": message.role, "content": message.content, "tool_calls": calls}
    content = message.content or ""
    if message.role is Role.TOOL:
        return {"role": message.role, "content": content, "tool_call_id": message.tool_call_id}
    if message.images:
        return {"role": message.role, "content": _parts(content, message.images)}
    return {"role": message.role, "content": content}


def _parts(text: str, images: Sequence[Image]) -> Sequence[Mapping[str, object]]:
    """Return words and images as the parts of one message; empty words are left out."""
    words = [{"type": "text", "text": text}] if text else []
    return [*words, *({"type": "image_url", "image_url": {"url": _data_url(i)}} for i in images)]


def _data_url(image: Image) -> str:
    """Return an image as the address that contains it (RFC 2397)."""
    return f"data:{image.content_type};base64,{base64.b64encode(image.data).decode()}"


def _tool_call(call: ToolCall) -> Mapping[str, object]:
    function = {"name": call.name, "arguments": _sent_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _sent_arguments(arguments: str) -> str:
    """Servers parse the arguments of earlier calls and refuse those that are no JSON object."""
    try:
        if isinstance(json.loads(arguments or "{}"), dict):
            return arguments or "{}"
    except (ValueError, RecursionError):
        pass
    return json.dumps({"not_json": arguments})


def _tool(tool: ToolSpec) -> Mapping[str, object]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}


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


def _none_if_wrong(value: object, validate: ValidatorFunctionWrapHandler) -> Any:
    """A count or a label that makes no sense must not cost the answer."""
    try:
        return validate(value)
    except ValidationError:
        return None


T = TypeVar("T")
Few = Annotated[tuple[T, ...], Field(max_length=MAX_ENTRIES)]
Count = Annotated[int, Field(ge=0, le=MAX_TOKEN_COUNT)]
Label = Annotated[str | None, WrapValidator(_none_if_wrong)]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class FunctionPiece(_Wire):
    """Name and arguments of a call, or a piece of them."""

    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_dumped)] = None


class CallPiece(_Wire):
    """A tool call, or a piece of one."""

    index: int | None = None
    id: Label = None
    function: FunctionPiece = FunctionPiece()


class ModelMessage(_Wire):
    """What the model said; reasoning is not part of the answer and left out."""

    content: Annotated[str | None, BeforeValidator(_text_of)] = None
    tool_calls: Few[CallPiece] | None = None


class Choice(_Wire):
    """One answer; only the first is asked for."""

    message: ModelMessage | None = None
    delta: ModelMessage | None = None
    finish_reason: Label = None


class UsageCounts(_Wire):
    """Tokens; whoever counts, counts both."""

    prompt_tokens: Count
    completion_tokens: Count


class CompletionEvent(_Wire):
    """A whole completion, or one event of a stream."""

    id: Any = None
    choices: Few[Choice] | None = None
    usage: Annotated[UsageCounts | None, WrapValidator(_none_if_wrong)] = None
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


Names = Annotated[tuple[str, ...] | None, WrapValidator(_none_if_wrong)]


class Architecture(_Wire):
    """What a model is, as OpenRouter says it."""

    input_modalities: Names = None


class Capabilities(_Wire):
    """What a model can do, as Mistral says it."""

    vision: Annotated[bool | None, WrapValidator(_none_if_wrong)] = None


class ModelEntry(_Wire):
    """One model that the endpoint offers; what it takes is said by some, and each its own way."""

    id: str
    input_modalities: Names = None
    architecture: Annotated[Architecture | None, WrapValidator(_none_if_wrong)] = None
    capabilities: Annotated[Capabilities | None, WrapValidator(_none_if_wrong)] = None

    @property
    def sees_images(self) -> bool | None:
        """Whether it takes images; None where that is not said."""
        nested = self.architecture.input_modalities if self.architecture is not None else None
        modalities = self.input_modalities or nested
        if modalities is not None:
            return "image" in modalities
        return self.capabilities.vision if self.capabilities is not None else None


class ModelList(_Wire):
    """Answer of `GET /models`."""

    data: tuple[ModelEntry, ...] = ()
