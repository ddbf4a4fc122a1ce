"""The body of `POST /v1/messages`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from bot.llm.dialect import Asked, Parameter
from bot.llm.dialects.alternating import declared, system_text, turns
from bot.llm.dialects.bodies import dumped, shown_tools
from bot.llm.dialects.kept import Block
from bot.llm.images import base64_of
from conversation_store.models import Image
from tools.schema import Declarations

MAX_TOKENS: Final = 4096
"""Of an answer: the API demands a number, and its oldest models take no larger one."""

_CACHED: Final[Mapping[str, object]] = {"cache_control": {"type": "ephemeral"}}


def request_body(model: str, of: str, asked: Asked, declarations: Declarations) -> bytes:
    """Return the JSON of a request for a message.

    Args:
        model: its name at the endpoint.
        of: the model as the owner of what is kept of its answers.
        asked: the request.
        declarations: of tools.
    """
    request = asked.request
    messages = turns(request.messages, _Blocks(), of)
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS}
    shown = shown_tools(asked)
    if tools := declared(shown, request.messages):
        body["tools"] = list(declarations.of(tools))
        if _forbids_calls(asked):
            body["tool_choice"] = {"type": "none"}
    if text := system_text(request.messages):
        body["system"] = [{"type": "text", "text": text}]
    body["messages"] = messages
    body["stream"] = Parameter.STREAM not in asked.omitted
    if Parameter.CACHING not in asked.omitted:
        _mark(body.get("tools"), body.get("system"), messages[-1]["content"])
    return dumped(body)


def parameters(asked: Asked) -> Collection[Parameter]:
    """Return what a request has that an endpoint may refuse."""
    found = {Parameter.STREAM, Parameter.CACHING}
    if _forbids_calls(asked):
        found.add(Parameter.TOOL_CHOICE)
    return found - asked.omitted


def _forbids_calls(asked: Asked) -> bool:
    """Whether tools are declared that may not be called, and that can be said."""
    request = asked.request
    offered = request.tools if request.may_call else ()
    return (
        Parameter.TOOL_CHOICE not in asked.omitted
        and not offered
        and bool(declared(request.tools, request.messages))
    )


def _mark(*parts: list[Block] | None) -> None:
    """Mark the ends of what the next request is likely to begin with, so that it is cached."""
    for blocks in parts:
        if blocks:
            blocks[-1] = {**blocks[-1], **_CACHED}


class _Blocks:
    """Implements `bot.llm.dialects.alternating.Blocks`."""

    def text(self, text: str) -> Block:
        return {"type": "text", "text": text}

    def image(self, image: Image) -> Block:
        source = {"type": "base64", "media_type": image.content_type, "data": base64_of(image)}
        return {"type": "image", "source": source}

    def call(self, id_: str, name: str, arguments: dict[str, object]) -> Block:
        return {"type": "tool_use", "id": id_, "name": name, "input": arguments}

    def result(self, id_: str, text: str, images: Sequence[Image]) -> Block:
        said = [self.text(text)] if text.strip() else []
        content = [*said, *map(self.image, images)] if images else text
        returned = {"content": content} if images or said else {}
        return {"type": "tool_result", "tool_use_id": id_, **returned}
